-- Commit one release and its charge, or find the release that is there already.    [design 4, Release and Budget]
-- KEYS  1 releases, 2 published, 3 ledger, 4 costs, 5 levels, 6 dates, 7 proof     (all of one domain and date)
-- ARGV  1 release_id, 2 policy name, 3 date, 4 cell/slot, 5 charge (1e-9), 6 cap K, 7 the day's limit (1e-9),
--       8 9 the record before and after its seq, 10 11 the same for a budget that is exhausted, 12 the proof's token
-- Returns {"committed" or "found", record, "1" if it is published}, or {"unproven"}: then nothing was written.
local proof = redis.call('HMGET', KEYS[7], 'run_id', 'token')
if proof[2] ~= ARGV[12] or proof[1] ~= string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') then
  return {'unproven'}
end

local found = redis.call('HGET', KEYS[1], ARGV[1])
if found then return {'found', found, tostring(redis.call('SISMEMBER', KEYS[2], ARGV[1]))} end

-- Numbers here are doubles: exact up to 9e6 epsilon a day, far beyond any policy that still hides something.
local charge, before = tonumber(ARGV[5]), tonumber(redis.call('HGET', KEYS[4], ARGV[4]) or '0')
local after, head, tail = before + charge, ARGV[8], ARGV[9]
if charge > 0 then
  local levels, list = {}, {}
  local flat = redis.call('HGETALL', KEYS[5])
  for i = 1, #flat, 2 do levels[tonumber(flat[i])] = tonumber(flat[i + 1]) end
  if before > 0 then levels[before] = levels[before] - 1 end
  levels[after] = (levels[after] or 0) + 1
  for level in pairs(levels) do list[#list + 1] = level end
  table.sort(list, function(a, b) return a > b end)
  local cost, left = 0, tonumber(ARGV[6])
  for _, level in ipairs(list) do
    local taken = math.min(left, levels[level])
    cost, left = cost + taken * level, left - taken
  end
  if cost > tonumber(ARGV[7]) then
    charge, head, tail = 0, ARGV[10], ARGV[11]
  else
    redis.call('HSET', KEYS[4], ARGV[4], string.format('%.0f', after))
    if before > 0 and redis.call('HINCRBY', KEYS[5], string.format('%.0f', before), -1) == 0 then
      redis.call('HDEL', KEYS[5], string.format('%.0f', before))
    end
    redis.call('HINCRBY', KEYS[5], string.format('%.0f', after), 1)
    redis.call('HINCRBY', KEYS[3], 'releases:' .. ARGV[2], 1)
    redis.call('HINCRBY', KEYS[3], 'epsilon:' .. ARGV[2], ARGV[5])
  end
end
redis.call('HINCRBY', KEYS[3], 'sequence', 1)
local seq = redis.call('HINCRBY', KEYS[3], 'commits:' .. ARGV[2], 1)
local record = head .. string.format('%.0f', seq) .. tail
redis.call('HSET', KEYS[1], ARGV[1], record)
redis.call('SADD', KEYS[6], ARGV[3])
return {'committed', record, '0'}
