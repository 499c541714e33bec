// The official Node client of RocketMQ 5 against a gRPC port: one subcommand per feature, one JSON object per line.
//
//   main.js send ENDPOINT TOPIC COUNT
//   main.js simple ENDPOINT TOPIC GROUP COUNT    after a first receive that finds nothing
'use strict';
const { Producer, SimpleConsumer } = require('rocketmq-client-nodejs');

const say = value => process.stdout.write(JSON.stringify(value) + '\n');
const credentials = process.env.INTEROP_ACCESS_KEY ? { sessionCredentials: {
  accessKey: process.env.INTEROP_ACCESS_KEY, accessSecret: process.env.INTEROP_SECRET_KEY } } : {};
const quiet = { info() {}, warn() {}, debug() {}, error(...words) { process.stderr.write(`${words.join(' ')}\n`); }, close() {} };

async function send(endpoints, topic, count) {
  const producer = new Producer({ endpoints, topics: [ topic ], topic, logger: quiet, ...credentials });
  await producer.startup();
  for (let number = 0; number < count; number++) {
    const receipt = await producer.send({ topic, tag: `tag${number % 3}`, keys: [ `key-${number}` ],
      properties: new Map([[ 'number', String(number) ], [ 'läge', 'über ✓ 漢字 😀' ]]),
      body: Buffer.from(`node ${number} ✓`) });
    say({ id: receipt.messageId, number });
  }
  await producer.shutdown();
}

async function simple(endpoints, topic, consumerGroup, count) {
  const consumer = new SimpleConsumer({ endpoints, consumerGroup, subscriptions: new Map([[ topic, '*' ]]),
    awaitDuration: 5000, logger: quiet, ...credentials });
  await consumer.startup();
  say({ ready: (await consumer.receive(1)).length });
  const end = Date.now() + 60000;
  for (let left = count; left > 0 && Date.now() < end;) {
    for (const found of await consumer.receive(20)) {
      say({ id: found.messageId, body: found.body.toString(), tag: found.tag, keys: found.keys,
        properties: Object.fromEntries(found.properties), attempt: found.deliveryAttempt });
      await consumer.ack(found);
      left--;
    }
  }
  await consumer.shutdown();
}

const [ , , what, ...rest ] = process.argv;
const run = { send: (e, t, n) => send(e, t, Number(n)), simple: (e, t, g, n) => simple(e, t, g, Number(n)) }[what];
run(...rest).then(() => process.exit(0), error => { process.stderr.write(`${error.stack}\n`); process.exit(1); });
