// What the official Node client says of an application's mistakes: one JSON object per line.
//
//   mistakes.js ENDPOINT NORMAL FIFO GROUP      topics of these types alone; `seen`: a code, or the client's own error
'use strict';
const { FilterExpression, Producer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { FilterType } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');
const { setTimeout: sleep } = require('node:timers/promises');

const HANGS_MS = 30000, STARTS_MS = 10000, LEAST_MS = 10000;
const quiet = { info() {}, warn() {}, debug() {}, error() {}, close() {} };
const root = error => (error.cause ? root(error.cause) : error);

async function outcome(call, most = HANGS_MS) {
  try {
    return await Promise.race([ call().then(() => 'ok'), sleep(most, 'hangs') ]);
  } catch (error) {
    return root(error).code ?? root(error).name;
  }
}

async function* mistakes(endpoints, normal, fifo, group) {
  const producer = new Producer({ endpoints, topics: [ normal, fifo ], logger: quiet });
  await producer.startup();
  const send = (topic, more) => producer.send({ topic, body: Buffer.from('x'), ...more });
  const sends = (name, topic = normal, more = {}) => [ name, () => send(topic, more) ];
  const consumer = async (topic, consumerGroup, expression) => {
    const made = new SimpleConsumer({ endpoints, consumerGroup, subscriptions: new Map([[ topic, expression ]]),
      awaitDuration: 5000, logger: quiet });
    await made.startup();
    return made;
  };
  const received = (name, { topic = normal, of = group, expression = '*', invisible = LEAST_MS }) => [ name,
    async () => (await consumer(topic, of, expression)).receive(32, invisible) ];
  const acknowledged = (name, wait, times) => [ name, async () => {
    const made = await consumer(normal, group, '*');
    await made.receive(32, LEAST_MS);
    await send(normal, {});
    const [ found ] = await made.receive(32, LEAST_MS);
    await sleep(wait);
    for (let n = 0; n < times; n++) await made.ack(found);
  } ];
  const many = new Map([ ...Array(129).keys() ].map(number => [ `k${number}`, 'v' ]));
  yield sends('no topic', 'no_such_topic');
  yield sends('normal to FIFO', fifo);
  yield sends('FIFO to normal', normal, { messageGroup: 'one' });
  yield sends('a large body', normal, { body: Buffer.alloc(4 * 1024 * 1024 + 1) });
  yield sends('a reserved property', normal, { properties: new Map([[ 'KEYS', 'x' ]]) });
  yield sends('129 properties', normal, { properties: many });
  yield sends('17,000 bytes of properties', normal, { properties: new Map([[ 'a', 'x'.repeat(17000) ]]) });
  yield received('consumes no topic', { topic: 'no_such_topic' });
  yield received('consumes by no SQL', { expression: new FilterExpression('a >', FilterType.SQL) });
  yield [ ...received('consumes by no tag', { expression: '||' }), STARTS_MS ];
  yield [ ...received('consumes for no group', { of: 'a b' }), STARTS_MS ];
  yield received('is given back too soon', { invisible: 5000 });
  yield acknowledged('acknowledges twice', 0, 2);
  yield acknowledged('acknowledges late', LEAST_MS + 1000, 1);
}

(async () => {
  for await (const [ mistake, call, most ] of mistakes(...process.argv.slice(2))) {
    process.stdout.write(`${JSON.stringify({ mistake, seen: await outcome(call, most) })}\n`);
  }
  process.exit(0);
})();
