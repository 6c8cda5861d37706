// What the clients in JavaScript share: arguments, records in, records out.
'use strict'
const readline = require('readline')

const brokers = process.env.BROKERS.split(',')

/** Runs the named command; an error goes to stderr by its name or text. */
function main(commands) {
  const [name, ...args] = process.argv.slice(2)
  if (!commands[name]) notRun(`no ${name}`)
  commands[name](...args).then(
    () => process.exit(0),
    error => {
      const causes = [error, ...(error.errors || [])]
      console.error(causes.map(e => `${e.type || e.name || ''}: ${e.message}`).join('; '))
      process.exit(1)
    }
  )
}

function notRun(why) {
  console.error(why)
  process.exit(77)
}

/** The records on stdin as the libraries want them. */
async function messages() {
  const found = []
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const record = JSON.parse(line)
    const headers = {}
    for (const [name, value] of record.headers) headers[name] = [...(headers[name] || []), value]
    found.push({ partition: record.partition, key: record.key, value: record.value, headers })
  }
  return found
}

function show({ partition, message }) {
  const text = data => (data === null || data === undefined ? null : data.toString())
  const headers = Object.entries(message.headers || {}).flatMap(([name, values]) =>
    (Array.isArray(values) ? values : [values]).map(value => [name, text(value)])
  )
  const record = {
    partition,
    offset: Number(message.offset),
    timestamp: Number(message.timestamp),
    key: text(message.key),
    value: text(message.value),
    headers,
  }
  process.stdout.write(JSON.stringify(record) + '\n')
}

/** `name=value` arguments as configuration entries. */
const entries = configs =>
  configs.map(c => ({ name: c.slice(0, c.indexOf('=')), value: c.slice(c.indexOf('=') + 1) }))

const terminated = () => new Promise(resolve => process.once('SIGTERM', resolve))

module.exports = { brokers, entries, main, messages, notRun, show, terminated }
