-- Read the states of cells in a horizon.
-- KEYS  1 states (of a policy and horizon), 2 horizons (of the policy); ARGV  1 first date of the horizon, 2.. the cells
-- Returns why the horizon is closed ('' if it is open), and the state of each cell (nil for none).
local closed = redis.call('HGET', KEYS[2], 'closed:' .. ARGV[1]) or ''
local cells = redis.call('HGET', KEYS[2], 'cells:' .. ARGV[1]) or '0'
local lost = redis.call('HGET', KEYS[2], 'lost') or ''
-- Redis lacked days of this horizon that are sealed, or lacks states that were stored.
if closed == '' and (ARGV[1] <= lost or tonumber(cells) ~= redis.call('HLEN', KEYS[1])) then closed = 'incomplete' end
local answer = {closed}
for i = 2, #ARGV do answer[i] = redis.call('HGET', KEYS[1], ARGV[i]) end
return answer
