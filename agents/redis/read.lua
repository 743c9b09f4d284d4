-- Read rows of a ledger, all of one moment.
-- KEYS  the keys to read; ARGV  1 '1' to read this server too, then for each key: 'hash' or 'set', the number of fields or
--       members to read ('' for all), and these
-- Returns {run_id and replication id of this server, or '', then of each key: values or marks in order; fields and values,
-- or members, if all were asked for}. A field '#' is the number of fields.
local STEP, at = 4000, 2  -- Lua unpacks 8,000 values at most
local found = {'', ''}
if ARGV[1] == '1' then
  found[1] = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
  found[2] = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)') or ''
end
for k = 1, #KEYS do
  local is_set, size = ARGV[at] == 'set', ARGV[at + 1]
  local first, answer = at + 2, {}
  if size == '' then
    answer, at = redis.call(is_set and 'SMEMBERS' or 'HGETALL', KEYS[k]), first
  else
    at = first + tonumber(size)
    for from = first, at - 1, STEP do
      local some = redis.call(is_set and 'SMISMEMBER' or 'HMGET', KEYS[k], unpack(ARGV, from, math.min(from + STEP, at) - 1))
      for i, value in ipairs(some) do
        answer[#answer + 1] = ARGV[from + i - 1] == '#' and tostring(redis.call('HLEN', KEYS[k])) or value
      end
    end
  end
  found[k + 2] = answer
end
return found
