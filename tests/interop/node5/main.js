// The official Node client of RocketMQ 5 against a gRPC port: one subcommand per feature, one JSON object per line.
//
//   main.js send ENDPOINT TOPIC COUNT
//   main.js kinds ENDPOINT TOPIC                 FIFO, delayed and recalled, transactions: commit, rollback, undecided
//   main.js simple ENDPOINT TOPIC GROUP COUNT    after a first receive that finds nothing
//   main.js push ENDPOINT TOPIC GROUP COUNT      fails the message with key-1 once
'use strict';
const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');
const { setTimeout: sleep } = require('node:timers/promises');

const LONGEST_MS = 60000;

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

const saySeen = found => say({ id: found.messageId, body: found.body.toString(), tag: found.tag, keys: found.keys,
  properties: Object.fromEntries(found.properties), attempt: found.deliveryAttempt });

async function kinds(endpoints, topic) {
  let told;
  const asked = new Promise(resolve => { told = resolve; });
  const checker = { async check(found) {
    say({ checked: found.body.toString() });
    told(true);
    return TransactionResolution.COMMIT;
  } };
  const producer = new Producer({ endpoints, topics: [ topic ], topic, checker, logger: quiet, ...credentials });
  await producer.startup();
  const send = (what, more, transaction) => producer.send({ topic, body: Buffer.from(what), ...more }, transaction);
  const later = ms => ({ deliveryTimestamp: new Date(Date.now() + ms) });
  for (const [ what, more ] of [[ 'fifo', { messageGroup: 'g' } ], [ 'delay', later(2000) ]]) {
    say({ id: (await send(what, more)).messageId, what });
  }
  const receipt = await send('recalled', later(30000));
  say({ recalled: (await producer.recallMessage(topic, receipt.recallHandle)).messageId, id: receipt.messageId });
  for (const how of [ 'commit', 'rollback', 'check' ]) {
    const transaction = producer.beginTransaction();
    await send(how, {}, transaction);
    if (how !== 'check') await transaction[how]();
  }
  say({ asked: await Promise.race([ asked, sleep(LONGEST_MS, false) ]) });
  await sleep(1000); // the answer to the check is on its way
  await producer.shutdown();
}

async function simple(endpoints, topic, consumerGroup, count) {
  const consumer = new SimpleConsumer({ endpoints, consumerGroup, subscriptions: new Map([[ topic, '*' ]]),
    awaitDuration: 5000, logger: quiet, ...credentials });
  await consumer.startup();
  say({ ready: (await consumer.receive(1)).length });
  const end = Date.now() + LONGEST_MS;
  for (let left = count; left > 0 && Date.now() < end;) {
    for (const found of await consumer.receive(20)) {
      saySeen(found);
      await consumer.ack(found);
      left--;
    }
  }
  await consumer.shutdown();
}

async function push(endpoints, topic, consumerGroup, count) {
  let left = count, done;
  const all = new Promise(resolve => { done = resolve; });
  const messageListener = { consume(found) {
    saySeen(found);
    if (found.keys.includes('key-1') && found.deliveryAttempt === 1) return ConsumeResult.FAILURE;
    if (--left === 0) done();
    return ConsumeResult.SUCCESS;
  } };
  const consumer = new PushConsumer({ endpoints, consumerGroup, subscriptions: new Map([[ topic, '*' ]]),
    messageListener, logger: quiet, ...credentials });
  await consumer.startup();
  say({ ready: 0 });
  await Promise.race([ all, sleep(LONGEST_MS) ]);
  await sleep(1000); // the last acknowledgement is on its way; a shutdown waits for long polls
}

const [ , , what, ...rest ] = process.argv;
const run = { send: (e, t, n) => send(e, t, Number(n)), kinds, simple: (e, t, g, n) => simple(e, t, g, Number(n)),
  push: (e, t, g, n) => push(e, t, g, Number(n)) }[what];
run(...rest).then(() => process.exit(0), error => { process.stderr.write(`${error.stack}\n`); process.exit(1); });
