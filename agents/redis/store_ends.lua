-- Store the ends of the output topics after all publishers were fenced: a recovery reads up to them.
-- KEYS  1 recovery, 2 ends; ARGV  1 the recovery's token, then `topic/partition` and position of each end
-- Returns 1, or 0 if another recovery is in progress.
if redis.call('HGET', KEYS[1], 'attempt') ~= ARGV[1] then return 0 end
for i = 2, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
return 1
