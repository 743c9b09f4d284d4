-- Put back the summary of a sealed day of a policy, in place of whatever this Redis has of it.    [decisions/0028]
-- KEYS  1 ledger (of one domain and date), 2 levels (of one policy too), 3 total, 4 dates, 5 last dates
-- ARGV  1 policy name, 2 date, 3 what its part of the day costs (1e-9), 4 the day's number, 5 6 the limits of a day and of
--       all days (1e-9; '' for none), 7 how many fields of the ledger follow, then those with their values, then those of
--       the levels
local name, fields = ARGV[1], tonumber(ARGV[7])
local own = {}
for i = 8, 7 + 2 * fields, 2 do own[#own + 1], own[#own + 2] = ARGV[i], ARGV[i + 1] end
local levels = {}
for i = 8 + 2 * fields, #ARGV do levels[#levels + 1] = ARGV[i] end
if #own > 0 then redis.call('HSET', KEYS[1], unpack(own)) end
redis.call('DEL', KEYS[2])
if #levels > 0 then redis.call('HSET', KEYS[2], unpack(levels)) end
settle(KEYS[1], KEYS[3], name, tonumber(ARGV[3]))
if tonumber(ARGV[4]) > tonumber(redis.call('HGET', KEYS[1], 'sequence') or '0') then
  redis.call('HSET', KEYS[1], 'sequence', ARGV[4])
end
lower(KEYS[1], ARGV[5])
lower(KEYS[3], ARGV[6])
redis.call('SADD', KEYS[4], ARGV[2])
later(KEYS[5], name, ARGV[2])
return 'OK'
