// The Node client against a NameServer: one subcommand per feature, one JSON object per line on standard output.
//
//   main.js send NAMESRV TOPIC COUNT
//   main.js consume NAMESRV TOPIC GROUP COUNT [TAGS]    ends after COUNT messages or a minute
//   main.js retry NAMESRV TOPIC GROUP                   fails each message once
//   main.js delay NAMESRV TOPIC LEVEL
//   main.js stream NAMESRV TOPIC GROUP                  sends and consumes until standard input ends
'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');
const { Consumer, Producer, Message } = require('ali-ons');

const quiet = { info() {}, warn() {}, debug() {}, error(error) { process.stderr.write(`${error}\n`); } };
const say = value => process.stdout.write(JSON.stringify(value) + '\n');
const httpclient = { request() { throw new Error('only an address server is asked by HTTP'); } };
const settings = (namesrv, group, more) => ({ nameSrv: namesrv.split(';'), producerGroup: group, consumerGroup: group,
  logger: quiet, httpclient, persistent: true, accessKey: process.env.INTEROP_ACCESS_KEY,
  secretKey: process.env.INTEROP_SECRET_KEY, ...more });

function message(topic, number) {
  const made = new Message(topic, `tag${number % 3}`, `node ${number} ✓`);
  made.keys = [ `key-${number}` ];
  made.properties.number = String(number);
  made.properties['läge'] = 'über ✓ 漢字 😀';
  return made;
}

async function withProducer(namesrv, work) {
  const producer = new Producer(settings(namesrv, `node_${process.pid}`));
  await producer.ready();
  await work(producer);
}

async function send(namesrv, topic, count, level) {
  await withProducer(namesrv, async producer => {
    for (let number = 0; number < count; number++) {
      const made = message(topic, number);
      if (level) made.delayTimeLevel = level;
      const result = await producer.send(made);
      say({ status: result.sendStatus, id: result.msgId, queue_offset: Number(result.queueOffset) });
    }
  });
}

async function consume(namesrv, topic, group, count, tags, failOnce) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'interop-'));
  const consumer = new Consumer(settings(namesrv, group, { consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    localOffsetStorePath: folder, delayInterval: 500 }));
  let left = count;
  const done = new Promise(resolve => {
    consumer.subscribe(topic, tags, async got => {
      say({ body: got.body.toString(), tags: got.tags, keys: got.keys, properties: got.properties, queue_id: got.queueId,
        queue_offset: Number(got.queueOffset), reconsume_times: got.reconsumeTimes, born_ms: Number(got.bornTimestamp),
        store_ms: Number(got.storeTimestamp), id: got.msgId });
      if (--left === 0) resolve();
      if (failOnce && got.reconsumeTimes === 0) throw new Error('once');
    });
    setTimeout(resolve, 60000).unref();
  });
  await consumer.ready();
  await done;
  await new Promise(resolve => setTimeout(resolve, 500));
}

async function stream(namesrv, topic, group) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'interop-'));
  const consumer = new Consumer(settings(namesrv, group, { consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    localOffsetStorePath: folder, delayInterval: 500 }));
  consumer.on('error', () => {});
  consumer.subscribe(topic, '*', async got => {
    say({ seen: got.body.toString(), queue_id: got.queueId, queue_offset: Number(got.queueOffset) });
  });
  const producer = new Producer(settings(namesrv, `node_${process.pid}`));
  producer.on('error', () => {});
  await producer.ready();
  await consumer.ready();
  let open = true;
  process.stdin.on('end', () => { open = false; }).resume();
  const rest = ms => new Promise(resolve => setTimeout(resolve, ms));
  for (let number = 1; open; number++) {
    const row = { how: 'sync', number };
    try {
      const result = await producer.send(new Message(topic, '', `sync/${number}`));
      if (result.sendStatus !== 'SEND_OK') row.failed = String(result.sendStatus);
    } catch (error) {
      row.failed = String(error.message).split('\n')[0];
    }
    say({ ...row, at_ms: Date.now() });
    await rest(5);
  }
  say({ ended: true });
  await new Promise(() => {}); // it consumes until it is killed: a program that returns here ends
}

async function main([ how, namesrv, topic, third, fourth, tags ]) {
  switch (how) {
    case 'send': await send(namesrv, topic, Number(third)); break;
    case 'delay': await send(namesrv, topic, 1, Number(third)); break;
    case 'consume': await consume(namesrv, topic, third, Number(fourth), tags || '*', false); break;
    case 'stream': await stream(namesrv, topic, third); break;
    case 'retry': await consume(namesrv, topic, third, 2, '*', true); break;
    default: throw new Error(`unknown subcommand ${how}`);
  }
}

main(process.argv.slice(2)).then(() => process.exit(0), error => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
