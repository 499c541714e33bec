// The official Go client of RocketMQ 5 against a gRPC port: one subcommand per feature, one JSON object per line.
//
//	go5 send ENDPOINT TOPIC COUNT            each with a tag, keys and properties
//	go5 kinds ENDPOINT TOPIC                 FIFO, delayed and recalled, transactions: commit, rollback, undecided
//	go5 simple ENDPOINT TOPIC GROUP COUNT    receives and acknowledges, after a first receive that finds nothing
//	go5 push ENDPOINT TOPIC GROUP COUNT      fails the message with key-1 once
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const longest = time.Minute

var (
	background = context.Background()
	saying     sync.Mutex
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(fields map[string]any) {
	text, err := json.Marshal(fields)
	check(err)
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(string(text))
}

func told(endpoint, group string) *rocketmq.Config {
	key := &credentials.SessionCredentials{
		AccessKey: os.Getenv("INTEROP_ACCESS_KEY"), AccessSecret: os.Getenv("INTEROP_SECRET_KEY"),
	}
	return &rocketmq.Config{Endpoint: endpoint, ConsumerGroup: group, Credentials: key}
}

func seen(found *rocketmq.MessageView) {
	tag := ""
	if found.GetTag() != nil {
		tag = *found.GetTag()
	}
	say(map[string]any{
		"id": found.GetMessageId(), "body": string(found.GetBody()), "tag": tag, "keys": found.GetKeys(),
		"properties": found.GetProperties(), "attempt": found.GetDeliveryAttempt(),
	})
}

func started(endpoint, topic string, more ...rocketmq.ProducerOption) rocketmq.Producer {
	producer, err := rocketmq.NewProducer(told(endpoint, ""), append(more, rocketmq.WithTopics(topic))...)
	check(err)
	check(producer.Start())
	return producer
}

func send(endpoint, topic string, count int) {
	producer := started(endpoint, topic)
	for number := 0; number < count; number++ {
		message := &rocketmq.Message{Topic: topic, Body: []byte(fmt.Sprintf("go %d ✓", number))}
		message.SetTag(fmt.Sprintf("tag%d", number%3))
		message.SetKeys(fmt.Sprintf("key-%d", number))
		message.AddProperty("number", strconv.Itoa(number))
		message.AddProperty("läge", "über ✓ 漢字 😀")
		receipts, err := producer.Send(background, message)
		check(err)
		say(map[string]any{"id": receipts[0].MessageID, "number": number})
	}
	check(producer.GracefulStop())
}

func kinds(endpoint, topic string) {
	asked := make(chan struct{}, 16)
	checker := &rocketmq.TransactionChecker{Check: func(found *rocketmq.MessageView) rocketmq.TransactionResolution {
		say(map[string]any{"checked": string(found.GetBody())})
		asked <- struct{}{}
		return rocketmq.COMMIT
	}}
	producer := started(endpoint, topic, rocketmq.WithTransactionChecker(checker))
	sent := func(message *rocketmq.Message) *rocketmq.SendReceipt {
		receipts, err := producer.Send(background, message)
		check(err)
		return receipts[0]
	}
	ordered := &rocketmq.Message{Topic: topic, Body: []byte("fifo")}
	ordered.SetMessageGroup("g")
	say(map[string]any{"id": sent(ordered).MessageID, "what": "fifo"})
	later := &rocketmq.Message{Topic: topic, Body: []byte("delay")}
	later.SetDelayTimestamp(time.Now().Add(2 * time.Second))
	say(map[string]any{"id": sent(later).MessageID, "what": "delay"})
	never := &rocketmq.Message{Topic: topic, Body: []byte("recalled")}
	never.SetDelayTimestamp(time.Now().Add(30 * time.Second))
	receipt := sent(never)
	recalled, err := producer.Recall(background, topic, receipt.RecallHandle)
	check(err)
	say(map[string]any{"recalled": recalled, "id": receipt.MessageID})
	for _, how := range []string{"commit", "rollback", "check"} {
		transaction := producer.BeginTransaction()
		_, err := producer.SendWithTransaction(background, &rocketmq.Message{Topic: topic, Body: []byte(how)}, transaction)
		check(err)
		if how == "commit" {
			check(transaction.Commit())
		} else if how == "rollback" {
			check(transaction.RollBack())
		}
	}
	select {
	case <-asked:
		time.Sleep(time.Second) // the answer is on its way
	case <-time.After(longest):
	}
	check(producer.GracefulStop())
}

func all(topic string) map[string]*rocketmq.FilterExpression {
	return map[string]*rocketmq.FilterExpression{topic: rocketmq.SUB_ALL}
}

func simple(endpoint, topic, group string, count int) {
	consumer, err := rocketmq.NewSimpleConsumer(told(endpoint, group),
		rocketmq.WithSimpleAwaitDuration(5*time.Second), rocketmq.WithSimpleSubscriptionExpressions(all(topic)))
	check(err)
	check(consumer.Start())
	first, _ := consumer.Receive(background, 1, 15*time.Second) // that nothing is there is an error
	say(map[string]any{"ready": len(first)})
	for end := time.Now().Add(longest); count > 0 && time.Now().Before(end); {
		found, _ := consumer.Receive(background, 32, 15*time.Second)
		for _, each := range found {
			seen(each)
			check(consumer.Ack(background, each))
			count--
		}
	}
	check(consumer.GracefulStop())
}

func push(endpoint, topic, group string, count int) {
	done, lock := make(chan struct{}), sync.Mutex{}
	listener := &rocketmq.FuncMessageListener{Consume: func(found *rocketmq.MessageView) rocketmq.ConsumerResult {
		lock.Lock()
		defer lock.Unlock()
		seen(found)
		if len(found.GetKeys()) == 1 && found.GetKeys()[0] == "key-1" && found.GetDeliveryAttempt() == 1 {
			return rocketmq.FAILURE
		}
		if count--; count == 0 {
			close(done)
		}
		return rocketmq.SUCCESS
	}}
	consumer, err := rocketmq.NewPushConsumer(told(endpoint, group), rocketmq.WithPushMessageListener(listener),
		rocketmq.WithPushAwaitDuration(5*time.Second), rocketmq.WithPushSubscriptionExpressions(all(topic)))
	check(err)
	check(consumer.Start())
	say(map[string]any{"ready": 0})
	select {
	case <-done:
	case <-time.After(longest):
	}
	check(consumer.GracefulStop())
}

func number(word string) int {
	found, err := strconv.Atoi(word)
	check(err)
	return found
}

func main() {
	rocketmq.EnableSsl = os.Getenv("INTEROP_TLS") != ""
	words := os.Args[1:]
	switch {
	case len(words) == 4 && words[0] == "send":
		send(words[1], words[2], number(words[3]))
	case len(words) == 3 && words[0] == "kinds":
		kinds(words[1], words[2])
	case len(words) == 5 && words[0] == "simple":
		simple(words[1], words[2], words[3], number(words[4]))
	case len(words) == 5 && words[0] == "push":
		push(words[1], words[2], words[3], number(words[4]))
	default:
		check(fmt.Errorf("send, kinds, simple or push"))
	}
}
