-- After staging.lua and index.lua.
-- Delete retained contributions of one slot whose queries are answered.
-- KEYS  1 {name:p}:state, 2 slots with retained contributions, 3 those of the slot
-- ARGV  1 the next nonce, 2 slot, then cells
local cells = check_retained(ARGV[2], KEYS[2], KEYS[3])
for i = 3, #ARGV do
  if get(KEYS[3], ARGV[i]) then
    cells = cells - 1
    set(KEYS[3], ARGV[i], false)
  end
end
set_retained(ARGV[2], KEYS[2], cells)
set(KEYS[1], 'nonce', ARGV[1])
return write_all('OK', true)
