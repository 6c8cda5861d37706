// kafkajs behind the runner's commands. It brings gzip; the other codecs are plugged in as its manual says.
'use strict'
const crypto = require('crypto')
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, ConfigSource, Kafka, logLevel } = require('kafkajs')
const { brokers, entries, main, messages, show, terminated } = require('../javascript.js')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => {
  const lz4 = require('lz4-napi')
  return {
    compress: encoder => lz4.compressFrame(encoder.buffer),
    decompress: data => lz4.decompressFrame(data),
  }
}
CompressionCodecs[CompressionTypes.ZSTD] = () => {
  const simple = new Promise(resolve => require('zstd-codec').ZstdCodec.run(zstd => resolve(new zstd.Simple())))
  return {
    compress: async encoder => Buffer.from((await simple).compress(encoder.buffer)),
    decompress: async data => Buffer.from((await simple).decompress(data)),
  }
}

const kafka = new Kafka({ brokers, logLevel: logLevel.ERROR })
const OF_THE_TOPIC = ConfigSource.TOPIC_CONFIG

async function produce(topic, codec) {
  const types = { none: 'None', gzip: 'GZIP', snappy: 'Snappy', lz4: 'LZ4', zstd: 'ZSTD' }
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  await producer.send({ topic, messages: await messages(), compression: CompressionTypes[types[codec]] })
  await producer.disconnect()
}

// Every consumer of this library is a member of a group.
async function consume(topic, start, count) {
  await withAdmin(admin => existing(admin, topic))
  const offset = await offsetOf(topic, start)
  const consumer = kafka.consumer({ groupId: `consume-${crypto.randomUUID()}`, allowAutoTopicCreation: false })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: start !== 'end' })
  let missing = Number(count)
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
    const eachMessage = async record => {
      if (record.partition !== 0 || missing === 0) return
      show(record)
      if (--missing === 0) resolve()
    }
    consumer.run({ autoCommit: false, eachMessage }).catch(reject)
    // At once, before anything is fetched.
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
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 500 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const crashed = new Promise((_, reject) => consumer.on(consumer.events.CRASH, event => {
    if (!event.payload.restart) reject(event.payload.error)
  }))
  await consumer.run({ eachMessage: async record => show(record) })
  await Promise.race([end, crashed])
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

async function existing(admin, topic) {
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  return topics[0]
}

async function create(topic, numPartitions, ...configs) {
  const wanted = { topic, numPartitions: Number(numPartitions), replicationFactor: 1, configEntries: entries(configs) }
  // It says false where the broker says that the topic is there.
  if (!(await withAdmin(admin => admin.createTopics({ topics: [wanted] })))) throw new Error('the topic exists')
}

async function describeConfigs(admin, name) {
  const resource = { type: ConfigResourceTypes.TOPIC, name }
  return (await admin.describeConfigs({ resources: [resource], includeSynonyms: false })).resources[0].configEntries
}

// It has only AlterConfigs, which resets what it does not name: what was set must be sent along.
async function alter(topic, ...configs) {
  const wanted = entries(configs)
  await withAdmin(async admin => {
    const kept = (await describeConfigs(admin, topic))
      .filter(c => c.configSource === OF_THE_TOPIC && !wanted.some(w => w.name === c.configName))
      .map(c => ({ name: c.configName, value: c.configValue }))
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [...kept, ...wanted] }
    await admin.alterConfigs({ validateOnly: false, resources: [resource] })
  })
}

async function describe(topic) {
  await withAdmin(async admin => {
    const { partitions } = await existing(admin, topic)
    const configs = Object.fromEntries((await describeConfigs(admin, topic)).map(c => [c.configName, c.configValue]))
    console.log(JSON.stringify({ partitions: partitions.length, configs }))
  })
}

const remove = topic => withAdmin(admin => admin.deleteTopics({ topics: [topic] }))

main({ produce, consume, group, create, alter, describe, delete: remove })
