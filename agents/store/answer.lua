-- Commit one answer to a query over days, or find the one that is there already.    [design 4; decisions/0014]
-- KEYS  1 releases, 2 published, 3 ledger (of one domain and the date it is kept under), 4 proof, 5 total, 6 successors,
--       7 last dates, 8 dates (of the domain), then the ledger of each of the period's dates
-- ARGV  1 release_id, 2 policy name, 3 the date it is kept under, 4 the limit of a day (1e-9), 5 that of all days ('' for
--       none), 6 7 the record before and after its seq (nothing after: it has no seq), 8 9 the same where some day has no
--       room for the query, 10 the proof's token, 11 the policy that this one replaces ('' for none), 12 this one as its
--       successor, 13 query, 14 in how many places a user can be, 15 its epsilon there (1e-9), then the dates
-- Returns as commit.lua. The charge is what the query has reserved on each of its days, and is so here at the latest.
local proof = redis.call('HMGET', KEYS[4], 'run_id', 'token')
if proof[2] ~= ARGV[10] or proof[1] ~= string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') then
  return {'unproven'}
end

local found = redis.call('HGET', KEYS[1], ARGV[1])
if found then return {'found', found, tostring(redis.call('SISMEMBER', KEYS[2], ARGV[1]))} end

local name, date = ARGV[2], ARGV[3]
local successor = redis.call('HGET', KEYS[6], name)
if successor and date >= string.match(successor, '^%S+') then return {'replaced'} end
if ARGV[11] ~= '' and redis.call('HGET', KEYS[6], ARGV[11]) ~= ARGV[12] then return {'unclaimed'} end

local head, tail = ARGV[6], ARGV[7]
for i = 9, #KEYS do
  if reserve(KEYS[i], KEYS[5], name, ARGV[13], ARGV[14], ARGV[15], ARGV[4], ARGV[5]) == 1 then
    redis.call('HINCRBY', KEYS[i], 'sequence', 1)
    redis.call('SADD', KEYS[8], ARGV[i + 7])
  end
  if places_of(KEYS[i], name, ARGV[13]) == 0 then head, tail = ARGV[8], ARGV[9] end
end
redis.call('HINCRBY', KEYS[3], 'sequence', 1)
local seq = text(redis.call('HINCRBY', KEYS[3], 'commits:' .. name, 1))
local record = tail == '' and head or head .. seq .. tail
redis.call('HSET', KEYS[1], ARGV[1], record)
redis.call('SADD', KEYS[8], date)
later(KEYS[7], name, date)
return {'committed', record, '0'}
