-- How a commit begins and ends, of a mean or of an answer: it stands before both scripts.

-- What is answered without a commit: the record that is there already, or one word of refusal; nil: go on.
local function decided(keys, id, name, date, token, replaces, claim)
  local proof = redis.call('HMGET', keys.proof, 'run_id', 'token')
  if proof[2] ~= token or proof[1] ~= string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') then
    return {'unproven'}
  end
  local found = redis.call('HGET', keys.releases, id)
  if found then return {'found', found, tostring(redis.call('SISMEMBER', keys.published, id))} end
  -- No day is of two policies, whatever their workers know of each other.
  local successor = redis.call('HGET', keys.successors, name)
  if successor and date >= string.match(successor, '^%S+') then return {'replaced'} end
  if replaces ~= '' and redis.call('HGET', keys.successors, replaces) ~= claim then return {'unclaimed'} end
end

-- Number a record, and keep it with all that is staged.
local function keep(keys, id, name, date, head, tail)
  increase(keys.ledger, 'sequence', 1)
  local seq = text(increase(keys.ledger, 'commits:' .. name, 1))
  local record = tail == '' and head or head .. seq .. tail
  set(keys.releases, id, record)
  join(keys.dates, date)
  later(keys.last, name, date)
  return written({'committed', record, '0'})
end
