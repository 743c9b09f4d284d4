-- How a commit begins and ends, for a release or an answer. This part precedes both scripts.

-- Return what answers the commit without writing: one word that rejects it, or the record that is stored already; nil:
-- go on. `sequence` is the field of the release partition's commit sequence, `before` the value that its owner wrote
-- last: another value means that this Redis went back in time, or that somebody else owns the partition. `seen` is the
-- greatest number of commits of the whole domain that this worker knows of: fewer means that Redis went back, whoever
-- committed what it lost.
local ALL = '*'
local function decided(keys, id, name, date, token, replaces, claim, sequence, before, seen)
  local recovery = redis.call('HMGET', keys.recovery, 'run_id', 'token')
  if recovery[2] ~= token or recovery[1] ~= string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') then
    return {'unrecovered'}
  end
  if (get(keys.sequences, sequence) or '0') ~= before then return {'behind'} end
  if number(keys.sequences, ALL) < tonumber(seen) then return {'behind'} end
  local sealed = redis.call('HGET', keys.sealed, name)
  if sealed and date <= sealed then return {'sealed'} end
  local found = get(keys.releases, id)
  if found then
    increase(keys.sequences, sequence, 1)
    local all = text(increase(keys.sequences, ALL, 1))
    return written({'found', found, tostring(redis.call('SISMEMBER', keys.published, id)), all})
  end
  -- No day is of two policies, whatever their workers know of each other.
  local successor = redis.call('HGET', keys.successors, name)
  if successor and date >= string.match(successor, '^%S+') then return {'replaced'} end
  if replaces ~= '' and redis.call('HGET', keys.successors, replaces) ~= claim then return {'unclaimed'} end
end

-- Number a record, advance the commit sequence, and write both with all that is staged.
local function keep(keys, id, name, date, head, tail, sequence)
  increase(keys.ledger, 'sequence', 1)
  local seq = text(increase(keys.ledger, 'commits:' .. name, 1))
  local record = tail == '' and head or head .. seq .. tail
  set(keys.releases, id, record)
  join(keys.dates, date)
  join(keys.unsealed, date)
  increase(keys.sequences, sequence, 1)
  later(keys.last, name, date)
  return written({'committed', record, '0', text(increase(keys.sequences, ALL, 1))})
end
