-- Store the state of a policy's tracker after a day, unless that of this day or a later one is stored.
-- KEYS  1 recovery (of the domain), 2 tracker (of the policy)
-- ARGV  1 the recovery's token, 2 the local date, 3 the state
-- Returns 1 if it is stored, or a later one was; 0 if this Redis is not recovered: then nothing was written.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
local date = get(KEYS[2], 'date')
if not date or date < ARGV[2] then
  set(KEYS[2], 'date', ARGV[2])
  set(KEYS[2], 'state', ARGV[3])
end
return write_all(1)
