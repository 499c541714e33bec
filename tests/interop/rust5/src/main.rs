// The official Rust client of RocketMQ 5 against a gRPC port: one subcommand per feature, one JSON object per line.
//
//   rust5 send ENDPOINT TOPIC COUNT
//   rust5 delay ENDPOINT TOPIC SECONDS
//   rust5 fifo ENDPOINT TOPIC GROUP COUNT       all in one message group
//   rust5 simple ENDPOINT TOPIC GROUP COUNT     after a first receive that finds nothing
use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::{Producer, SimpleConsumer};
use serde_json::json;
use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

type Done = Result<(), Box<dyn Error>>;

fn client(endpoint: &str) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(endpoint);
    option.set_enable_tls(false);
    option.set_timeout(Duration::from_secs(30)); // a busy machine is no failure
    if let (Ok(key), Ok(secret)) = (std::env::var("INTEROP_ACCESS_KEY"), std::env::var("INTEROP_SECRET_KEY")) {
        option.set_access_key(key);
        option.set_secret_key(secret);
    }
    option
}

async fn producer(endpoint: &str, topic: &str) -> Result<Producer, Box<dyn Error>> {
    let mut option = ProducerOption::default();
    option.set_topics(vec![topic]);
    let mut made = Producer::new(option, client(endpoint))?;
    made.start().await?;
    Ok(made)
}

async fn send(endpoint: &str, topic: &str, count: usize) -> Done {
    let producer = producer(endpoint, topic).await?;
    for number in 0..count {
        let told = HashMap::from([("number", number.to_string()), ("läge", "über ✓ 漢字 😀".to_string())]);
        let message = MessageBuilder::builder()
            .set_topic(topic)
            .set_tag(format!("tag{}", number % 3))
            .set_keys(vec![format!("key-{number}")])
            .set_properties(told)
            .set_body(format!("rust {number} ✓").into_bytes())
            .build()?;
        let receipt = producer.send(message).await?;
        println!("{}", json!({"id": receipt.message_id(), "number": number}));
    }
    producer.shutdown().await?;
    Ok(())
}

async fn delay(endpoint: &str, topic: &str, seconds: u64) -> Done {
    let producer = producer(endpoint, topic).await?;
    let due = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + seconds;
    let message = MessageBuilder::delay_message_builder(topic, b"later".to_vec(), due as i64).build()?;
    println!("{}", json!({"id": producer.send(message).await?.message_id(), "due_s": due}));
    producer.shutdown().await?;
    Ok(())
}

async fn fifo(endpoint: &str, topic: &str, group: &str, count: usize) -> Done {
    let producer = producer(endpoint, topic).await?;
    for number in 0..count {
        let body = number.to_string().into_bytes();
        let message = MessageBuilder::fifo_message_builder(topic, body, group).build()?;
        println!("{}", json!({"id": producer.send(message).await?.message_id()}));
    }
    producer.shutdown().await?;
    Ok(())
}

async fn simple(endpoint: &str, topic: &str, group: &str, count: usize) -> Done {
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![topic]);
    option.set_consumer_group(group);
    let mut consumer = SimpleConsumer::new(option, client(endpoint))?;
    consumer.start().await?;
    let all = FilterExpression::new(FilterType::Tag, "*");
    println!("{}", json!({"ready": consumer.receive(topic, &all).await.map_or(0, |found| found.len())}));
    let (mut left, began) = (count, Instant::now());
    while left > 0 && began.elapsed() < Duration::from_secs(60) {
        let came = consumer.receive(topic, &all).await.unwrap_or_default(); // the box may be starting again
        for found in came {
            let body = String::from_utf8_lossy(found.body());
            println!(
                "{}",
                json!({"id": found.message_id(), "body": body, "tag": found.tag(), "keys": found.keys(),
                       "properties": found.properties(), "attempt": found.delivery_attempt()})
            );
            consumer.ack(&found).await?;
            left = left.saturating_sub(1); // a receive may bring more than are wanted
        }
    }
    consumer.shutdown().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Done {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["send", endpoint, topic, count] => send(endpoint, topic, count.parse()?).await,
        ["delay", endpoint, topic, seconds] => delay(endpoint, topic, seconds.parse()?).await,
        ["fifo", endpoint, topic, group, count] => fifo(endpoint, topic, group, count.parse()?).await,
        ["simple", endpoint, topic, group, count] => simple(endpoint, topic, group, count.parse()?).await,
        _ => Err("send, delay, fifo or simple".into()),
    }
}
