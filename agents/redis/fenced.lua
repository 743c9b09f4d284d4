-- Store where the output topics ended once all publishers were fenced: a recovery reads so far.
-- KEYS  1 recovery, 2 ends; ARGV  1 the recovery's token, then `topic/partition` and offset of each
-- Returns 1, or 0 where another recovery is in progress by now.
if redis.call('HGET', KEYS[1], 'attempt') ~= ARGV[1] then return 0 end
for i = 2, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
return 1
