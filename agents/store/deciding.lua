-- How a commit begins and ends, for a release or an answer. This part precedes both scripts.

-- Return what answers the commit without writing: one word that rejects it, or the record that is stored already; nil:
-- go on. `sequence` is the field of the release partition's commit sequence, `written` the value that its owner wrote
-- last: another value means that this Redis went back in time, or that somebody else owns the partition.
local function decided(keys, id, name, date, token, replaces, claim, sequence, written)
  local recovery = redis.call('HMGET', keys.recovery, 'run_id', 'token')
  if recovery[2] ~= token or recovery[1] ~= string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') then
    return {'unrecovered'}
  end
  if (redis.call('HGET', keys.sequences, sequence) or '0') ~= written then return {'behind'} end
  local sealed = redis.call('HGET', keys.sealed, name)
  if sealed and date <= sealed then return {'sealed'} end
  local found = redis.call('HGET', keys.releases, id)
  if found then
    redis.call('HINCRBY', keys.sequences, sequence, 1)
    return {'found', found, tostring(redis.call('SISMEMBER', keys.published, id))}
  end
  -- No day is of two policies, whatever their workers know of each other.
  local successor = redis.call('HGET', keys.successors, name)
  if successor and date >= string.match(successor, '^%S+') then return {'replaced'} end
  if replaces ~= '' and redis.call('HGET', keys.successors, replaces) ~= claim then return {'unclaimed'} end
end

-- Number a record, store it, and advance the commit sequence.
local function keep(keys, id, name, date, head, tail, sequence)
  redis.call('HINCRBY', keys.ledger, 'sequence', 1)
  local seq = text(redis.call('HINCRBY', keys.ledger, 'commits:' .. name, 1))
  local record = tail == '' and head or head .. seq .. tail
  redis.call('HSET', keys.releases, id, record)
  redis.call('SADD', keys.dates, date)
  redis.call('SADD', keys.unsealed, date)
  redis.call('HINCRBY', keys.sequences, sequence, 1)
  later(keys.last, name, date)
  return {'committed', record, '0'}
end
