-- How a commit begins and ends, for a release or an answer. This part precedes both scripts.

-- Return the reply if there is nothing to commit: one word that rejects the commit, or the record that is stored
-- already; else nil. `sequence` is the field of the release partition's commit sequence, `before` the value that its
-- owner wrote last: another value means that this Redis went back in time, or that another worker owns the partition.
-- `seen` is the greatest number of the domain's commits that this worker knows: a smaller one means that Redis went back,
-- even if all lost commits were of other workers.
local ALL = '*'
local function reject_or_find(keys, id, name, date, token, replaces, claim, sequence, before, seen)
  local recovery = redis.call('HMGET', keys.recovery, 'run_id', 'token')
  if recovery[2] ~= token or recovery[1] ~= string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') then
    return {'unrecovered'}
  end
  if (get(keys.sequences, sequence) or '0') ~= before then return {'behind'} end
  if get_number(keys.sequences, ALL) < tonumber(seen) then return {'behind'} end
  local sealed = redis.call('HGET', keys.sealed, name)
  if sealed and date <= sealed then return {'sealed'} end
  local found = get(keys.releases, id)
  if found then
    increase(keys.sequences, sequence, 1)
    local all = text(increase(keys.sequences, ALL, 1))
    return write_all({'found', found, tostring(redis.call('SISMEMBER', keys.published, id)), all})
  end
  -- A day never belongs to two policies, even if their workers do not know of each other.
  local successor = redis.call('HGET', keys.successors, name)
  if successor and date >= string.match(successor, '^%S+') then return {'replaced'} end
  if replaces ~= '' and redis.call('HGET', keys.successors, replaces) ~= claim then return {'unclaimed'} end
end

-- Number a record, advance the commit sequence, and write both with all that is staged.
local function write_record(keys, id, name, date, head, tail, sequence)
  increase(keys.ledger, 'sequence', 1)
  local seq = text(increase(keys.ledger, 'commits:' .. name, 1))
  local record = tail == '' and head or head .. seq .. tail
  set(keys.releases, id, record)
  add_member(keys.dates, date)
  add_member(keys.unsealed, date)
  increase(keys.sequences, sequence, 1)
  raise_last_date(keys.last, name, date)
  return write_all({'committed', record, '0', text(increase(keys.sequences, ALL, 1))})
end
