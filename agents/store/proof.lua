-- What this server is, and the token of the proof that was written under it.
-- KEYS 1 {domain}:proof
-- Returns {its run_id, the token, or nil where the proof is missing or of another server or another life of it}
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local proof = redis.call('HMGET', KEYS[1], 'run_id', 'token')
return {run_id, proof[1] == run_id and proof[2]}
