-- Take back records that stand on the output topics but not here: this Redis has lost them.    [design 4, Proven]
-- KEYS  1 releases, 2 ledger (of one domain and date), 3 costs, 4 levels (of one policy too), 5 dates, 6 total,
--       7 last dates
-- ARGV  1 date, 2 policy name, then for each record: release_id, cell/slot, charge (1e-9), seq,
--       how fine its noise is, record
-- Returns how many were missing, then the release_ids that have other bytes here: supersede.lua deals with those.
local name, found, charged = ARGV[2], {0}, false
for i = 3, #ARGV, 6 do
  local charge, seq = ARGV[i + 2], tonumber(ARGV[i + 3])
  if redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 5]) == 1 then
    found[1] = found[1] + 1
    if tonumber(charge) > 0 then
      charged = true
      book(KEYS[3], KEYS[4], ARGV[i + 1], charge)
      redis.call('HINCRBY', KEYS[2], 'releases:' .. name, 1)
      redis.call('HINCRBY', KEYS[2], 'epsilon:' .. name, charge)
      redis.call('HINCRBY', KEYS[2], 'fineness:' .. name .. ':' .. ARGV[i + 4], 1)
    end
    redis.call('HINCRBY', KEYS[2], 'sequence', 1)
    redis.call('SADD', KEYS[5], ARGV[1])
    later(KEYS[7], name, ARGV[1])
  elseif redis.call('HGET', KEYS[1], ARGV[i]) ~= ARGV[i + 5] then
    found[#found + 1] = ARGV[i]
  end
  -- Numbers that were given out are not given out again.
  if seq > tonumber(redis.call('HGET', KEYS[2], 'commits:' .. name) or '0') then
    redis.call('HSET', KEYS[2], 'commits:' .. name, text(seq))
  end
end
-- The cap may be lost too: until recall.lua brings it back, every charge counts.
if charged then
  settle(KEYS[2], KEYS[6], name, cost_of(levels_in(KEYS[4]), redis.call('HGET', KEYS[2], 'cap:' .. name) or ''))
end
return found
