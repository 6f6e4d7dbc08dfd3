-- Fixed window: at most `limit` units in a window that the first allowed request starts.
-- The Rust twin is src/decision/fixed_window.rs.
--
-- State  string: units taken in this window, a plain positive integer of at most 10 digits; it expires at
--        start + window. With 0 ms left the window is over.
-- ARGV   $A + 0 limit    units, 1 .. 1,000,000,000
--        $A + 1 window   milliseconds, 1 .. 31,622,400,000 (366 days)
--        $A + 2 cost     units per request, at least 1

--- numbers
limit, window, cost

--- arguments
$include limit, window, cost

--- check
local count_$N, left_$N = 0, 0
$include string
if stored_$N then
  if #stored_$N > 10 or not find(stored_$N, '^[1-9]%d*$') then return {-5, now_us, $N} end
  left_$N = expires_$N - now
  if left_$N > window_$N + 1000 then return {-6, now_us, $N} end
  if left_$N > 0 then
    count_$N = stored_$N + 0
    -- A clock that stepped back must not make the wait longer than the window.
    if left_$N > window_$N then left_$N = window_$N end
  else
    left_$N = 0
  end
end
local room_$N = limit_$N - count_$N
$include fits

--- prepare
local units_$N = $CHARGED == 1 and ARGV[$A + 2] or string.format('%d', $CHARGED * cost_$N)
local ends_$N = count_$N == 0 and string.format('%d', now + window_$N)

--- write
if count_$N > 0 then
  call('INCRBY', KEYS[$N], units_$N)
else
  call('SET', KEYS[$N], units_$N, 'PXAT', ends_$N)
  left_$N = window_$N
end
room_$N = room_$N - $CHARGED * cost_$N

--- reply
local remaining_$N = room_$N > 0 and room_$N or 0
local retry_$N, reset_$N = 0, left_$N
if cost_$N > limit_$N then
  retry_$N = -1
elseif cost_$N > remaining_$N then
  retry_$N = left_$N
end
