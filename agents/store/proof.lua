-- What this server is, and the token of the proof that was written under it.
-- KEYS 1 {domain}:proof, 2 {domain}:producers
-- ARGV for each producer that the asker holds: its release partition, its id, its epoch
-- Returns {its run_id, the token, or nil where the proof is missing or of another server or another life of it}
-- Kafka numbers the producers of a release partition. Where a number is missing here, somebody has sent whom this server
-- does not know: the proof is over.    [decisions/0012]
local proof = redis.call('HMGET', KEYS[1], 'run_id', 'token')  -- before anything is written: it fails on a wrong type
local whole = true
for i = 1, #ARGV, 3 do
  local id, epoch = ARGV[i + 1], tonumber(ARGV[i + 2])
  local known_id, known = string.match(redis.call('HGET', KEYS[2], ARGV[i]) or '', '^(%d+):(%d+)$')
  known = known_id == id and tonumber(known) or -2
  if known < epoch then
    whole = whole and known == epoch - 1
    redis.call('HSET', KEYS[2], ARGV[i], id .. ':' .. ARGV[i + 2])
  end
end
if not whole then redis.call('HDEL', KEYS[1], 'run_id', 'token') end
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
return {run_id, whole and proof[1] == run_id and proof[2]}
