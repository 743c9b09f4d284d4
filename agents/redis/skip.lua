-- After staging.lua.
-- Continue after records that were deleted unread, as accepted by the operator.
-- KEYS[1]  {name:p}:state
-- ARGV     the stored offset, the log's start, the next nonce
if get(KEYS[1], 'offset') == ARGV[1] then
  set(KEYS[1], 'offset', ARGV[2])
  set(KEYS[1], 'gap', '1')
  set(KEYS[1], 'nonce', ARGV[3])
end
return write_all('OK')
