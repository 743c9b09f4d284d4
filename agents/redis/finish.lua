-- Finish a recovery: this server process has every record that was published before the publishers were fenced.
-- KEYS  1 recovery, 2 ends, 3 adopted, 4 sealed; ARGV  1 the recovery's token, then each policy with sealed days and
--       its last sealed date: the summaries were restored before that date was
-- Returns 1, or 0 and writes nothing: another recovery is in progress, the server went back or was replaced meanwhile,
-- or not everything is adopted yet. Whatever removes adopted records also removes the recovery's token, or moves the
-- adopted position back.
local stored = redis.call('HMGET', KEYS[1], 'attempt', 'attempt_run_id', 'attempt_replid', 'token')
if stored[4] == ARGV[1] then return 1 end  -- an earlier reply was lost
if stored[1] ~= ARGV[1] then return 0 end
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)') or ''
if stored[2] ~= run_id or stored[3] ~= replid then return 0 end
local ends = redis.call('HGETALL', KEYS[2])
if #ends == 0 then return 0 end
for i = 1, #ends, 2 do
  local id, last = string.match(ends[i + 1], '^(.*):(%d+)$')
  local known, offset = string.match(redis.call('HGET', KEYS[3], ends[i]) or '', '^(.*):(%d+)$')
  if tonumber(last) > 0 and (known ~= id or tonumber(offset) < tonumber(last)) then return 0 end
end
for i = 2, #ARGV, 2 do
  if (redis.call('HGET', KEYS[4], ARGV[i]) or '') < ARGV[i + 1] then return 0 end
end
redis.call('HSET', KEYS[1], 'run_id', run_id, 'replid', replid, 'token', ARGV[1])
redis.call('HDEL', KEYS[1], 'attempt', 'attempt_run_id', 'attempt_replid')
redis.call('DEL', KEYS[2])
return 1
