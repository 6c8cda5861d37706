// @confluentinc/kafka-javascript (librdkafka) in its kafkajs style behind the runner's commands.
'use strict'
const crypto = require('crypto')
const { Kafka, logLevel } = require('@confluentinc/kafka-javascript').KafkaJS
const { brokers, entries, main, messages, notRun, show, terminated } = require('../javascript.js')

const kafka = new Kafka({ kafkaJS: { brokers, logLevel: logLevel.NOTHING } })

async function produce(topic, codec) {
  const producer = kafka.producer({
    kafkaJS: { idempotent: true },
    'compression.type': codec,
    'linger.ms': 20,
    'message.max.bytes': 10000000,
  })
  await producer.connect()
  await producer.send({ topic, messages: await messages() })
  await producer.disconnect()
}

async function consume(topic, start, count) {
  await withAdmin(admin => existing(admin, topic))
  const offset = await offsetOf(topic, start)
  const consumer = kafka.consumer({
    kafkaJS: {
      groupId: `consume-${crypto.randomUUID()}`,
      fromBeginning: start !== 'end',
      autoCommit: false,
      allowAutoTopicCreation: false,
    },
  })
  await consumer.connect()
  await consumer.subscribe({ topic })
  let missing = Number(count)
  await new Promise((resolve, reject) => {
    const eachMessage = async record => {
      if (record.partition !== 0 || missing === 0) return
      show(record)
      if (--missing === 0) resolve()
    }
    consumer.run({ eachMessage }).catch(reject)
    // Kept until the partition is assigned.
    if (offset !== null) consumer.seek({ topic, partition: 0, offset })
  })
  await consumer.disconnect()
}

async function offsetOf(topic, start) {
  const [kind, number] = start.split(':')
  if (kind === 'offset') return number
  if (kind !== 'timestamp') return null
  const found = await withAdmin(admin => admin.fetchTopicOffsetsByTimestamp(topic, Number(number)))
  return found.find(p => p.partition === 0).offset
}

async function group(groupId, topic) {
  const end = terminated()
  const consumer = kafka.consumer({
    kafkaJS: { groupId, fromBeginning: true, sessionTimeout: 6000, heartbeatInterval: 500 },
  })
  await consumer.connect()
  await consumer.subscribe({ topic })
  await consumer.run({ eachMessage: async record => show(record) })
  await end
  await consumer.disconnect()
}

async function withAdmin(call) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await call(admin)
  } finally {
    await admin.disconnect()
  }
}

const existing = async (admin, topic) => (await admin.fetchTopicMetadata({ topics: [topic] }))[0]

async function create(topic, numPartitions, ...configs) {
  const wanted = { topic, numPartitions: Number(numPartitions), replicationFactor: 1, configEntries: entries(configs) }
  // It says false where the broker says that the topic is there.
  if (!(await withAdmin(admin => admin.createTopics({ topics: [wanted] })))) throw new Error('the topic exists')
}

const remove = topic => withAdmin(admin => admin.deleteTopics({ topics: [topic] }))
const noConfigs = async () => notRun('it cannot ask for or change configurations')

main({ produce, consume, group, create, alter: noConfigs, describe: noConfigs, delete: remove })
