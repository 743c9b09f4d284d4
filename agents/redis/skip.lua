-- Continue after records that were deleted unread, as accepted by the operator.
-- KEYS[1]  {name:p}:state
-- ARGV     the stored offset, the log's start
if get(KEYS[1], 'offset') == ARGV[1] then
  set(KEYS[1], 'offset', ARGV[2])
  set(KEYS[1], 'gap', '1')
  -- Slots closed by this watermark are complete. Of several gaps the first one counts.
  local watermark = get(KEYS[1], 'clock')
  if watermark and not get(KEYS[1], 'complete_from') and not get(KEYS[1], 'lost_from') then
    set_number(KEYS[1], 'lost_from', parse_integer(watermark, KEYS[1]))
  end
end
return write_all('OK')
