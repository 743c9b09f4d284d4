-- Write the proof that this server, in this life, holds all that was ever published.
-- KEYS 1 {domain}:proof, 2 {domain}:producers
-- ARGV 1 the run_id it was proven under, 2 the token of the attempt, then for each producer that it was proven with: its
--      release partition, its id, its epoch
-- Returns 1, or 0 if the server was restarted or replaced meanwhile, or has lost what it had when the attempt began:
-- then the attempt's token is gone too.
if string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') ~= ARGV[1] then return 0 end
local known = redis.call('HMGET', KEYS[1], 'attempt', 'token')
if known[2] == ARGV[2] then return 1 end  -- the answer was lost
if known[1] ~= ARGV[2] then return 0 end
redis.call('HLEN', KEYS[2])  -- before anything is written: it fails on a wrong type
redis.call('HSET', KEYS[1], 'run_id', ARGV[1], 'token', ARGV[2])
redis.call('HDEL', KEYS[1], 'attempt')
for i = 3, #ARGV, 3 do
  local known_id, known = string.match(redis.call('HGET', KEYS[2], ARGV[i]) or '', '^(%d+):(%d+)$')
  if known_id ~= ARGV[i + 1] or tonumber(known) < tonumber(ARGV[i + 2]) then
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1] .. ':' .. ARGV[i + 2])
  end
end
return 1
