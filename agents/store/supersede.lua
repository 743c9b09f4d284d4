-- A record that was committed here and never sent gives way to the one that was sent.    [decisions/0010]
-- KEYS  1 releases, 2 ledger (of one domain and date), 3 costs, 4 levels (of one policy too), 5 total
-- ARGV  1 policy name, 2 release_id, 3 cell/slot,
--       4 5 6 record, charge (1e-9) and how fine its noise is, of what is here; 7 8 9 the same of what was sent
-- Returns 1, or 0 where by now something else is here: then nothing was written.
local name, place = ARGV[1], ARGV[3]
if redis.call('HGET', KEYS[1], ARGV[2]) ~= ARGV[4] then return 0 end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[7])
local function count(charge, fineness, sign)
  if tonumber(charge) == 0 then return end
  redis.call('HINCRBY', KEYS[2], 'releases:' .. name, sign)
  redis.call('HINCRBY', KEYS[2], 'epsilon:' .. name, sign == 1 and charge or '-' .. charge)
  redis.call('HINCRBY', KEYS[2], 'fineness:' .. name .. ':' .. fineness, sign)
end
count(ARGV[5], ARGV[6], -1)
count(ARGV[8], ARGV[9], 1)
if ARGV[5] ~= ARGV[8] then
  if tonumber(ARGV[5]) > 0 then unbook(KEYS[3], KEYS[4], place, ARGV[5]) end
  if tonumber(ARGV[8]) > 0 then book(KEYS[3], KEYS[4], place, ARGV[8]) end
  local cap = redis.call('HGET', KEYS[2], 'cap:' .. name) or ''
  settle(KEYS[2], KEYS[5], name, cost_of_day(KEYS[2], name, levels_in(KEYS[4]), cap))
end
-- No new number: with the records that are put back, this is the ledger that hats.budget has told of.
return 1
