-- Go on behind records that were deleted unread, as the operator has accepted.
-- KEYS[1]  {name:p}:state
-- ARGV     the stored offset, the log's start
if get(KEYS[1], 'offset') == ARGV[1] then
  set(KEYS[1], 'offset', ARGV[2])
  set(KEYS[1], 'gap', '1')
  -- Slots that were closed by then are whole. Of several gaps the first one counts.
  local clock = get(KEYS[1], 'clock')
  if clock and not get(KEYS[1], 'complete_from') and not get(KEYS[1], 'lost_from') then
    store(KEYS[1], 'lost_from', whole(clock, KEYS[1]))
  end
end
return written('OK')
