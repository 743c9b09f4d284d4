-- Read the state of the recovery, and the commit sequences of release partitions.    [decisions/0027]
-- KEYS  1 recovery, 2 sequences, 3 sealed; ARGV  1 policy name, then the fields of the commit sequences
-- Returns {token ('' if there is none, or only of another server process or replication history), token of the recovery
-- in progress ('' for none), the policy's last sealed date ('' for none), number of the domain's commits,
-- generation of the newest recovery, then the value of each
-- sequence}
local stored = redis.call('HMGET', KEYS[1], 'run_id', 'replid', 'token', 'attempt')
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)') or ''
local token = stored[1] == run_id and stored[2] == replid and stored[3] or ''
local found = {
  token, stored[4] or '', redis.call('HGET', KEYS[3], ARGV[1]) or '', redis.call('HGET', KEYS[2], '*') or '0',
  redis.call('HGET', KEYS[1], 'generation') or '0',
}
for i = 2, #ARGV do found[#found + 1] = redis.call('HGET', KEYS[2], ARGV[i]) or '0' end
return found
