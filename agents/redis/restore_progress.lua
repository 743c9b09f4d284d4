-- Restore a policy's slot progress: the first slot only becomes earlier, the marks only later.
-- KEYS  1 progress; ARGV  1 the first slot's start (ms UTC), then field and value of each mark
local first = get(KEYS[1], 'first')
if not first or tonumber(ARGV[1]) < parse_integer(first, KEYS[1]) then set(KEYS[1], 'first', ARGV[1]) end
for i = 2, #ARGV, 2 do
  if tonumber(ARGV[i + 1]) > get_number(KEYS[1], ARGV[i]) then set(KEYS[1], ARGV[i], ARGV[i + 1]) end
end
return write_all('OK')
