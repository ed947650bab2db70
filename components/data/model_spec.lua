-- Puts a model's version before a gRPC request of TensorFlow Serving. Those that name a model do so in field 1,
-- and a reader of protobuf merges what comes twice, the later value winning: what stands before the message is
-- only a default, so a version that the client itself wrote there is kept.
--
-- The route says in the filter's context what to add: `spec`, that field as hexadecimal digits; or `number_in`,
-- the header that holds a version's number. With `required` a request that cannot be changed is refused.

local function varint(value)
  local bytes = {}
  while value >= 128 do
    bytes[#bytes + 1] = string.char(value % 128 + 128)
    value = math.floor(value / 128)
  end
  bytes[#bytes + 1] = string.char(value)
  return table.concat(bytes)
end

-- The same of a number's digits: as a number, one above 2^53 would become another.
local function varint_of(digits)
  local bytes = {}
  repeat
    local quotient, remainder = {}, 0
    for digit in string.gmatch(digits, "%d") do
      local value = remainder * 10 + tonumber(digit)
      quotient[#quotient + 1] = math.floor(value / 128)
      remainder = value % 128
    end
    digits = string.gsub(table.concat(quotient), "^0+", "")
    bytes[#bytes + 1] = string.char(digits == "" and remainder or remainder + 128)
  until digits == ""
  return table.concat(bytes)
end

local function with_length(tag, content)
  return string.char(tag) .. varint(#content) .. content
end

local function spec_of(request, context)
  local header = context:get("number_in")
  if header == nil then
    return (string.gsub(context:get("spec"), "%x%x", function(digits)
      return string.char(tonumber(digits, 16))
    end))
  end
  -- ModelSpec.version (2) holds an Int64Value, whose value is field 1.
  local version = "\8" .. varint_of(request:headers():get(header))
  return with_length(0x0a, with_length(0x12, version))
end

local function length_of(frame)
  local a, b, c, d = string.byte(frame, 2, 5)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

local function frame_head(length)
  return string.char(
    0,
    math.floor(length / 16777216) % 256,
    math.floor(length / 65536) % 256,
    math.floor(length / 256) % 256,
    length % 256
  )
end

function envoy_on_request(request)
  -- Both now: once the body was waited for, the context is gone.
  local context = request:filterContext()
  local spec, required = spec_of(request, context), context:get("required")
  -- The whole body: a change of what streams through announced a wrong length, and such requests were reset.
  local body = request:body(true)
  local size = body:length()
  if size < 5 then
    return
  end
  local frame = body:getBytes(0, size)
  if string.byte(frame, 1) ~= 0 then
    if required then
      request:respond({
        [":status"] = "200",
        ["content-type"] = "application/grpc",
        ["grpc-status"] = "3",
        ["grpc-message"] = "a compressed message cannot be given a version: send it as it is, or name the version in it",
      }, "")
    end
    return
  end
  body:setBytes(frame_head(length_of(frame) + #spec) .. spec .. string.sub(frame, 6))
end
