// The official Go client against a NameServer: one subcommand per feature, one JSON object per line on standard output.
//
//	interop send NAMESRV TOPIC COUNT             sync sends with keys, tags and properties
//	interop async NAMESRV TOPIC COUNT
//	interop oneway NAMESRV TOPIC COUNT
//	interop batch NAMESRV TOPIC COUNT            one batch of COUNT messages
//	interop consume NAMESRV TOPIC GROUP COUNT [TAGS]  push consumer; ends after COUNT messages or a minute
//	interop retry NAMESRV TOPIC GROUP            fails each message once
//	interop delay NAMESRV TOPIC LEVEL
//	interop transaction NAMESRV TOPIC            commits "commit", rolls "rollback" back
//	interop stream NAMESRV TOPIC GROUP           sends sync, async and one-way and consumes, until standard input ends
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type seen struct {
	Body       string            `json:"body"`
	Tags       string            `json:"tags"`
	Keys       string            `json:"keys"`
	Properties map[string]string `json:"properties"`
	QueueID    int               `json:"queue_id"`
	Offset     int64             `json:"queue_offset"`
	Reconsume  int32             `json:"reconsume_times"`
	BornMs     int64             `json:"born_ms"`
	StoreMs    int64             `json:"store_ms"`
	ID         string            `json:"id"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var saying sync.Mutex

func say(value interface{}) {
	text, err := json.Marshal(value)
	check(err)
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(string(text))
}

func message(topic string, number int) *primitive.Message {
	made := primitive.NewMessage(topic, []byte(fmt.Sprintf("go %d ✓", number)))
	made.WithTag(fmt.Sprintf("tag%d", number%3)).WithKeys([]string{fmt.Sprintf("key-%d", number)})
	made.WithProperty("number", strconv.Itoa(number))
	made.WithProperty("läge", "über ✓ 漢字 😀")
	return made
}

func messages(topic string, count int) []*primitive.Message {
	all := make([]*primitive.Message, count)
	for number := range all {
		all[number] = message(topic, number)
	}
	return all
}

// The account comes from the environment, as it would in a container.
func account() primitive.Credentials {
	return primitive.Credentials{AccessKey: os.Getenv("INTEROP_ACCESS_KEY"), SecretKey: os.Getenv("INTEROP_SECRET_KEY")}
}

func open(namesrv string) rocketmq.Producer {
	options := []producer.Option{producer.WithNameServer([]string{namesrv}), producer.WithRetry(2)}
	options = append(options, producer.WithCredentials(account()))
	made, err := rocketmq.NewProducer(options...)
	check(err)
	check(made.Start())
	return made
}

func sent(result *primitive.SendResult) {
	say(map[string]interface{}{"status": int(result.Status), "id": result.MsgID, "queue_offset": result.QueueOffset})
}

func send(how, namesrv, topic string, count int) {
	sender := open(namesrv)
	defer sender.Shutdown()
	var pending sync.WaitGroup
	switch how {
	case "batch":
		result, err := sender.SendSync(context.Background(), messages(topic, count)...)
		check(err)
		sent(result)
		return
	}
	for number, each := range messages(topic, count) {
		switch {
		case how == "oneway" && number > 0: // the first makes the topic
			check(sender.SendOneWay(context.Background(), each))
		case how == "async" && number > 0:
			pending.Add(1)
			check(sender.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
				defer pending.Done()
				check(err)
				sent(result)
			}, each))
		default:
			result, err := sender.SendSync(context.Background(), each)
			check(err)
			sent(result)
		}
	}
	pending.Wait()
	time.Sleep(200 * time.Millisecond) // one-way sends leave before the connection does
}

func consume(namesrv, topic, group, tags string, count int, failOnce bool) {
	reader, err := rocketmq.NewPushConsumer(consumer.WithNameServer([]string{namesrv}), consumer.WithGroupName(group),
		consumer.WithCredentials(account()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	got, mutex := make(chan struct{}, 1<<20), sync.Mutex{}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
	check(reader.Subscribe(topic, selector, func(ctx context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mutex.Lock()
		defer mutex.Unlock()
		again := false
		for _, each := range batch {
			say(seen{string(each.Body), each.GetTags(), each.GetKeys(), each.GetProperties(), each.Queue.QueueId,
				each.QueueOffset, each.ReconsumeTimes, each.BornTimestamp, each.StoreTimestamp, each.MsgId})
			again = again || failOnce && each.ReconsumeTimes == 0
			got <- struct{}{}
		}
		if again {
			consume, _ := primitive.GetConcurrentlyCtx(ctx)
			consume.DelayLevelWhenNextConsume = 1
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(reader.Start())
	defer reader.Shutdown()
	over := time.After(time.Minute)
	for ; count > 0; count-- {
		select {
		case <-got:
		case <-over:
			return
		}
	}
}

func delay(namesrv, topic string, level int) {
	sender := open(namesrv)
	defer sender.Shutdown()
	late := message(topic, 0)
	late.WithDelayTimeLevel(level)
	result, err := sender.SendSync(context.Background(), late)
	check(err)
	sent(result)
}

type decisions struct{}

func (decisions) ExecuteLocalTransaction(half *primitive.Message) primitive.LocalTransactionState {
	if string(half.Body) == "commit" {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func (decisions) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return primitive.UnknowState
}

func transaction(namesrv, topic string) {
	sender, err := rocketmq.NewTransactionProducer(decisions{}, producer.WithNameServer([]string{namesrv}))
	check(err)
	check(sender.Start())
	defer sender.Shutdown()
	for _, body := range []string{"commit", "rollback"} {
		result, err := sender.SendMessageInTransaction(context.Background(), primitive.NewMessage(topic, []byte(body)))
		check(err)
		sent(result.SendResult)
	}
}

// What a sender was told of one message; the body is HOW/NUMBER.
func told(how string, number int, err error) {
	row := map[string]interface{}{"how": how, "number": number, "at_ms": time.Now().UnixMilli()}
	if err != nil {
		row["failed"] = err.Error()
	}
	say(row)
}

func stored(result *primitive.SendResult, err error) error {
	if err == nil && result.Status != primitive.SendOK {
		return fmt.Errorf("status %d", result.Status)
	}
	return err
}

// A number at a time, whatever becomes of it, until the channel is closed.
func number(stop chan struct{}, send func(number int)) {
	for number := 1; ; number++ {
		select {
		case <-stop:
			return
		case <-time.After(5 * time.Millisecond):
			send(number)
		}
	}
}

// Sends one by one and one way. Not asynchronously: this client ends its process when such a send gets no answer.
func stream(namesrv, topic, group string) {
	servers := strings.Split(namesrv, ";")
	sender, err := rocketmq.NewProducer(producer.WithNameServer(servers), producer.WithRetry(2))
	check(err)
	check(sender.Start())
	reader, err := rocketmq.NewPushConsumer(consumer.WithNameServer(servers), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	all := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	check(reader.Subscribe(topic, all, func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, each := range batch {
			say(map[string]interface{}{"seen": string(each.Body), "queue_id": each.Queue.QueueId, "queue_offset": each.QueueOffset})
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(reader.Start())
	stop, pending := make(chan struct{}), sync.WaitGroup{}
	body := func(how string, number int) *primitive.Message {
		return primitive.NewMessage(topic, []byte(fmt.Sprintf("%s/%d", how, number)))
	}
	run := func(how string, send func(number int)) {
		pending.Add(1)
		go func() {
			defer pending.Done()
			number(stop, send)
		}()
	}
	run("sync", func(number int) {
		result, err := sender.SendSync(context.Background(), body("sync", number))
		told("sync", number, stored(result, err))
	})
	run("oneway", func(number int) {
		told("oneway", number, sender.SendOneWay(context.Background(), body("oneway", number)))
	})
	io.Copy(io.Discard, os.Stdin)
	close(stop)
	pending.Wait()
	say(map[string]interface{}{"ended": true})
	select {} // consumes until it is killed
}

func main() {
	rlog.SetLogLevel("fatal")
	arguments := append(os.Args[1:], "*")
	number := func(at int) int {
		value, err := strconv.Atoi(arguments[at])
		check(err)
		return value
	}
	switch how := arguments[0]; how {
	case "send", "async", "oneway", "batch":
		send(how, arguments[1], arguments[2], number(3))
	case "consume":
		consume(arguments[1], arguments[2], arguments[3], arguments[5], number(4), false)
	case "retry":
		consume(arguments[1], arguments[2], arguments[3], "*", 2, true)
	case "delay":
		delay(arguments[1], arguments[2], number(3))
	case "stream":
		stream(arguments[1], arguments[2], arguments[3])
	case "transaction":
		transaction(arguments[1], arguments[2])
	default:
		check(fmt.Errorf("unknown subcommand %s", how))
	}
}
