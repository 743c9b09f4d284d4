-- Begin a recovery of the ledger, or join the one in progress. No commit succeeds until it is finished.
-- KEYS  1 recovery, 2 ends
-- ARGV  1 the token of a new recovery, 2 the token of a recovery in progress to replace ('' for none), 3 the greatest
--       generation that this worker knows
-- Returns {the token of the recovery in progress, '1' once all publishers are fenced}
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)') or ''
local stored = redis.call('HMGET', KEYS[1], 'attempt', 'attempt_run_id', 'attempt_replid')
local goes_on = stored[1] and stored[2] == run_id and stored[3] == replid and stored[1] ~= ARGV[2]
if not goes_on then
  -- Greater than that of any recovery whose token this Redis may get back from a copy.
  local generation = math.max(tonumber(redis.call('HGET', KEYS[1], 'generation') or '0'), tonumber(ARGV[3])) + 1
  redis.call('HDEL', KEYS[1], 'run_id', 'replid', 'token')
  redis.call(
    'HSET', KEYS[1], 'attempt', ARGV[1], 'attempt_run_id', run_id, 'attempt_replid', replid,
    'generation', string.format('%.0f', generation)
  )
  redis.call('DEL', KEYS[2])
  return {ARGV[1], '0'}
end
return {stored[1], tostring(redis.call('EXISTS', KEYS[2]))}
