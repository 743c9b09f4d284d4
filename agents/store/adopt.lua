-- Take back records that stand on the output topics but not here: this Redis has lost them.    [design 4, Proven]
-- KEYS  1 releases, 2 ledger, 3 costs, 4 levels, 5 dates        (all of one domain and date)
-- ARGV  1 date, then for each record: release_id, policy name, cell/slot, charge (1e-9), seq, record
-- Returns how many were missing.
local missing = 0
for i = 2, #ARGV, 6 do
  local name, place, charge, seq = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], tonumber(ARGV[i + 4])
  if redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 5]) == 1 then
    missing = missing + 1
    if tonumber(charge) > 0 then
      local before = redis.call('HGET', KEYS[3], place) or '0'
      local after = redis.call('HINCRBY', KEYS[3], place, charge)
      if before ~= '0' and redis.call('HINCRBY', KEYS[4], before, -1) == 0 then redis.call('HDEL', KEYS[4], before) end
      redis.call('HINCRBY', KEYS[4], string.format('%.0f', after), 1)
      redis.call('HINCRBY', KEYS[2], 'releases:' .. name, 1)
      redis.call('HINCRBY', KEYS[2], 'epsilon:' .. name, charge)
    end
    redis.call('HINCRBY', KEYS[2], 'sequence', 1)
    redis.call('SADD', KEYS[5], ARGV[1])
  end
  -- Numbers that were given out are not given out again.
  if seq > tonumber(redis.call('HGET', KEYS[2], 'commits:' .. name) or '0') then
    redis.call('HSET', KEYS[2], 'commits:' .. name, string.format('%.0f', seq))
  end
end
return missing
