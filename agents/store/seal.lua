-- Seal a policy's days: from now on nothing of them is committed or adopted.    [decisions/0028]
-- KEYS  1 recovery, 2 sealed; ARGV  1 the recovery's token, 2 policy name, 3 through which date
-- Returns 1, or 0 where this Redis is not recovered: then nothing was written.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
local known = get(KEYS[2], ARGV[2])
if not known or known < ARGV[3] then set(KEYS[2], ARGV[2], ARGV[3]) end
return written(1)
