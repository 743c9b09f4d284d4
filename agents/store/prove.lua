-- Write the proof that this server, in this life, holds all that was ever published.
-- KEYS 1 {domain}:proof; ARGV 1 the run_id it was proven under, 2 a random token
-- Returns 1, or 0 if the server was restarted or replaced meanwhile.
if string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'run_id', ARGV[1], 'token', ARGV[2])
return 1
