-- Write the proof that this server, in this life, holds all that was ever published.
-- KEYS 1 {domain}:proof; ARGV 1 the run_id it was proven under, 2 the token of the attempt
-- Returns 1, or 0 if the server was restarted or replaced meanwhile, or has lost what it had when the attempt began:
-- then the attempt's token is gone too.
if string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') ~= ARGV[1] then return 0 end
local known = redis.call('HMGET', KEYS[1], 'attempt', 'token')
if known[2] == ARGV[2] then return 1 end  -- the answer was lost
if known[1] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'run_id', ARGV[1], 'token', ARGV[2])
redis.call('HDEL', KEYS[1], 'attempt')
return 1
