-- geokv's frames for Wireshark and tshark:
--     wireshark -X lua_script:geokv.lua -o tcp.reassemble_out_of_order:TRUE link.pcap
-- Names every frame between two sites' KV servers (TCP port 7000) and what it says. A frame
-- and the raw payload behind it are one unit; sites that use TLS cannot be read.

local geokv = Proto("geokv", "geokv KV cache protocol")

local KINDS = {
  [1] = "HELLO", [2] = "CHALLENGE", [3] = "JOIN", [4] = "READY", [5] = "REFUSED",
  [16] = "GET", [17] = "CHUNK", [18] = "MISS", [19] = "WARM", [20] = "FILL", [21] = "CALL",
  [22] = "REPLY", [23] = "CODED", [24] = "OFFER", [25] = "ACCEPT", [26] = "PAYLOAD",
  [27] = "DONE", [28] = "READ", [29] = "DATA", [30] = "WRITE", [31] = "NOTIFY",
}
-- Names of the fields of each body, in order (msgpack arrays).
local JOINED, TICKET, ACCESS = { "incarnation", "layout" }, { "id", "n_bytes" }, { "id", "places", "notice" }
local BODIES = {
  HELLO = { "nonce", "site" }, CHALLENGE = { "nonce", "mac" }, JOIN = JOINED, READY = JOINED,
  REFUSED = { "cause", "message" },
  GET = { "id", "key", "tenant", "priority", "group", "exact", "codec" },
  MISS = { "id", "cause" }, WARM = TICKET, FILL = TICKET,
  CALL = { "id", "method", "body" }, REPLY = { "id", "error", "body" },
  CODED = { "id", "codec", "header", "groups" }, OFFER = { "id", "header" },
  ACCEPT = TICKET, PAYLOAD = TICKET, DONE = TICKET, DATA = TICKET,
  READ = ACCESS, WRITE = ACCESS, NOTIFY = { "notice" },
}
local VERSION, HEAD, MAC, MOST_BODY = 2, 20, 16, 1048576

local f = {
  kind = ProtoField.uint8("geokv.kind", "Kind", base.DEC, KINDS),
  version = ProtoField.uint8("geokv.version", "Version"),
  length = ProtoField.uint32("geokv.body_bytes", "Body length"),
  sequence = ProtoField.uint64("geokv.sequence", "Sequence"),
  crc = ProtoField.uint32("geokv.crc", "CRC-32", base.HEX),
  mac = ProtoField.bytes("geokv.mac", "MAC"),
  payload = ProtoField.bytes("geokv.payload", "Payload"),
  payload_bytes = ProtoField.uint64("geokv.payload_bytes", "Payload length"),
  body = ProtoField.bytes("geokv.body", "Body"),
  id = ProtoField.uint64("geokv.id", "Request"),
  field = ProtoField.string("geokv.field", "Field"),
  site = ProtoField.string("geokv.site", "Site"),
  cause = ProtoField.string("geokv.cause", "Cause"),
  method = ProtoField.string("geokv.method", "Method"),
  tenant = ProtoField.string("geokv.tenant", "Tenant"),
  key = ProtoField.bytes("geokv.key", "Chunk key"),
  parent = ProtoField.bytes("geokv.parent", "Parent key"),
  model = ProtoField.bytes("geokv.model", "Model"),
  layout = ProtoField.bytes("geokv.layout", "Layout"),
  generation = ProtoField.uint64("geokv.generation", "Generation"),
  incarnation = ProtoField.uint64("geokv.incarnation", "Incarnation"),
  wire_bytes = ProtoField.uint64("geokv.wire_bytes", "Wire bytes"),
  lease = ProtoField.uint64("geokv.lease_ns", "Lease (ns)"),
  codec = ProtoField.string("geokv.codec", "Codec"),
  lossy = ProtoField.bool("geokv.lossy", "Lossy"),
  epoch = ProtoField.uint64("geokv.epoch", "Epoch"),
  groups = ProtoField.uint16("geokv.groups", "Layer groups"),
  checksum = ProtoField.bytes("geokv.checksum", "Checksum"),
  tokens = ProtoField.uint32("geokv.tokens", "Tokens"),
}
local list = {}
for _, one in pairs(f) do list[#list + 1] = one end
geokv.fields = list

-- msgpack, as much of it as frames use. Returns value, next offset; numbers as Lua numbers.
local unpack_value

local function unpack_many(buffer, at, count, map)
  local made = {}
  for i = 1, count do
    local key = i
    if map then key, at = unpack_value(buffer, at) end
    made[key], at = unpack_value(buffer, at)
  end
  return made, at
end

local function big(buffer, at, size)
  local value = 0
  for i = 0, size - 1 do value = value * 256 + buffer(at + i, 1):uint() end
  return value
end

unpack_value = function(buffer, at)
  local tag = buffer(at, 1):uint()
  at = at + 1
  if tag < 0x80 then return tag, at end
  if tag < 0x90 then return unpack_many(buffer, at, tag - 0x80, true) end
  if tag < 0xa0 then return unpack_many(buffer, at, tag - 0x90, false) end
  if tag < 0xc0 then return buffer:raw(at, tag - 0xa0), at + tag - 0xa0 end
  if tag == 0xc0 then return nil, at end
  if tag == 0xc2 or tag == 0xc3 then return tag == 0xc3, at end
  if tag >= 0xe0 then return tag - 256, at end
  local sized = { [0xc4] = 1, [0xc5] = 2, [0xc6] = 4, [0xd9] = 1, [0xda] = 2, [0xdb] = 4 }
  if sized[tag] then
    local length = big(buffer, at, sized[tag])
    at = at + sized[tag]
    return length > 0 and buffer:raw(at, length) or "", at + length
  end
  if tag >= 0xcc and tag <= 0xcf then
    local size = 2 ^ (tag - 0xcc)
    return big(buffer, at, size), at + size
  end
  if tag >= 0xd0 and tag <= 0xd3 then
    local size = 2 ^ (tag - 0xd0)
    local value = big(buffer, at, size)
    if value >= 2 ^ (8 * size - 1) then value = value - 2 ^ (8 * size) end
    return value, at + size
  end
  if tag == 0xca then return buffer(at, 4):float(), at + 4 end
  if tag == 0xcb then return buffer(at, 8):float(), at + 8 end
  local size = (tag == 0xdc or tag == 0xde) and 2 or 4
  return unpack_many(buffer, at + size, big(buffer, at, size), tag >= 0xde)
end

local function message(kind, body)
  if kind == "CHUNK" or body:len() == 0 then return {} end
  local ok, values = pcall(unpack_value, body, 0)
  if not ok or type(values) ~= "table" then return {} end
  local named = {}
  for i, name in ipairs(BODIES[kind] or {}) do named[name] = values[i] end
  return named
end

-- What one direction must know of the other: the server's layout, and which layer group a
-- GET asked for. By connection, filled on the first pass.
local layouts, groups = {}, {}

local function conversation(pinfo)
  if pinfo.dst_port == geokv.prefs.port then
    return tostring(pinfo.src) .. ":" .. pinfo.src_port .. ">" .. tostring(pinfo.dst)
  end
  return tostring(pinfo.dst) .. ":" .. pinfo.dst_port .. ">" .. tostring(pinfo.src)
end

local ITEM = { float64 = 8, float32 = 4, float16 = 2, bfloat16 = 2 }

local function group_bytes(layout, group)
  local base, extra = math.floor(layout.layers / layout.groups), layout.layers % layout.groups
  local start = group * base + math.min(group, extra)
  local stop = start + base + (group < extra and 1 or 0)
  local real = layout.layers * 2 * layout.kv_heads * layout.head_dim
    * (ITEM[layout.dtype] or 1) * layout.chunk_tokens
  local filler = layout.wire_bytes_per_token * layout.chunk_tokens - real
  return (stop - start) * real / layout.layers
    + math.floor(filler * stop / layout.layers) - math.floor(filler * start / layout.layers)
end

local function payload_bytes(kind, body, said, talk)
  if kind == "CHUNK" then
    local group = (groups[talk] or {})[big(body, 0, 8)]
    if group and layouts[talk] then return group_bytes(layouts[talk], group) end
    return big(body, 8 + 12 + 64 + 16, 8)
  elseif kind == "GET" and (said.group or -1) >= 0 then
    groups[talk] = groups[talk] or {}
    groups[talk][said.id] = said.group
  elseif kind == "READY" then
    layouts[talk] = said.layout
  elseif kind == "FILL" or kind == "PAYLOAD" or kind == "DATA" then
    return said.n_bytes or 0
  elseif kind == "CODED" then
    local total = 0
    for _, group in ipairs(said.groups or {}) do total = total + group[1] + group[2] end
    return total
  elseif kind == "WRITE" then
    local total = 0
    for _, place in ipairs(said.places or {}) do total = total + place[4] end
    return total
  end
  return 0
end

local function show_record(tree, body)
  tree:add(f.id, body(0, 8))
  local at = 8
  tree:add(f.lossy, body(at + 7, 1), body(at + 7, 1):uint() % 2 == 1)
  tree:add(f.key, body(at + 12, 16))
  tree:add(f.parent, body(at + 28, 16))
  tree:add(f.model, body(at + 44, 16))
  tree:add(f.layout, body(at + 60, 16))
  tree:add(f.generation, body(at + 76, 8))
  tree:add(f.incarnation, body(at + 84, 8))
  tree:add(f.wire_bytes, body(at + 92, 8))
  tree:add(f.lease, body(at + 100, 8))
  local flags = body(at + 7, 1):uint()
  at = at + 108
  if math.floor(flags / 2) % 2 == 1 then
    tree:add(f.epoch, body(at, 8))
    at = at + 8
  end
  for _, name in ipairs({ "tenant", "codec" }) do
    local length = body(at, 1):uint()
    tree:add(f[name], body(at + 1, length))
    at = at + 1 + length
  end
  local count = body(at, 2):uint()
  tree:add(f.groups, body(at, 2))
  for i = 0, count - 1 do tree:add(f.checksum, body(at + 2 + 16 * i, 16)) end
  tree:add(f.tokens, body(at + 2 + 16 * count, 4))
end

local function hex(text)
  return (text:gsub(".", function(one) return string.format("%02x", one:byte()) end))
end

local function shown(value)
  if type(value) == "table" then return "…" end
  if type(value) ~= "string" then return tostring(value) end
  if value:find("[^\32-\126]") then return hex(value) end
  return value
end

local NAMED = { site = f.site, cause = f.cause, method = f.method, tenant = f.tenant }

local function show_message(tree, kind, body, said)
  for _, name in ipairs(BODIES[kind] or {}) do
    local value = said[name]
    if type(value) == "table" then
      for key, inner in pairs(value) do
        tree:add(f.field, body(), name .. "." .. tostring(key) .. " = " .. shown(inner))
      end
    elseif value ~= nil then
      if NAMED[name] then
        tree:add(NAMED[name], body(), value)
      elseif name == "id" then
        tree:add(f.id, body(), UInt64(value % 2 ^ 32, math.floor(value / 2 ^ 32)))
      else
        tree:add(f.field, body(), name .. " = " .. shown(value))
      end
    end
  end
  return said.tenant or said.site or said.cause or said.method
end

local function dissect_frame(buffer, pinfo, root, offset)
  local left = buffer:len() - offset
  if left < HEAD then return nil, DESEGMENT_ONE_MORE_SEGMENT end
  local kind = KINDS[buffer(offset, 1):uint()]
  local body_length = buffer(offset + 4, 4):uint()
  if not kind or buffer(offset + 1, 1):uint() ~= VERSION or body_length > MOST_BODY then
    return false
  end
  local mac = (kind == "HELLO" or kind == "CHALLENGE") and 0 or MAC
  local whole = HEAD + body_length + mac
  if left < whole then return nil, whole - left end
  local body = buffer(offset + HEAD, body_length):tvb()
  local said = message(kind, body)
  local raw = payload_bytes(kind, body, said, conversation(pinfo))
  if left < whole + raw then return nil, whole + raw - left end
  local tree = root:add(geokv, buffer(offset, whole + raw), "geokv " .. kind)
  tree:add(f.kind, buffer(offset, 1))
  tree:add(f.version, buffer(offset + 1, 1))
  tree:add(f.length, buffer(offset + 4, 4))
  tree:add(f.sequence, buffer(offset + 8, 8))
  tree:add(f.crc, buffer(offset + 16, 4))
  local detail
  if kind == "CHUNK" then
    show_record(tree, body)
  elseif body_length > 0 then
    detail = show_message(tree, kind, body, said)
  end
  if mac > 0 then tree:add(f.mac, buffer(offset + HEAD + body_length, MAC)) end
  if raw > 0 then
    tree:add(f.payload_bytes, buffer(offset + whole, 0), UInt64(raw % 2 ^ 32, math.floor(raw / 2 ^ 32)))
    tree:add(f.payload, buffer(offset + whole, raw))
  end
  if pinfo.cols.info then
    local text = kind
    if type(detail) == "string" and not detail:find("[^\32-\126]") then
      text = text .. " " .. detail
    end
    if raw > 0 then text = text .. string.format(" (%d bytes of payload)", raw) end
    pinfo.cols.info:append(text .. "; ")
  end
  return whole + raw
end

geokv.prefs.port = Pref.uint("TCP port", 7000, "Port of the sites' KV servers")

function geokv.dissector(buffer, pinfo, root)
  pinfo.cols.protocol = "geokv"
  pinfo.cols.info:clear()
  local offset = 0
  while offset < buffer:len() do
    local taken, missing = dissect_frame(buffer, pinfo, root, offset)
    if taken == false then
      pinfo.cols.info:append("no geokv frame (TLS, or the capture began in mid-stream)")
      return buffer:len()
    elseif taken == nil then
      pinfo.desegment_offset = offset
      pinfo.desegment_len = missing
      return buffer:len()
    end
    offset = offset + taken
  end
  return buffer:len()
end

function geokv.init()
  layouts, groups = {}, {}
end

DissectorTable.get("tcp.port"):add(geokv.prefs.port, geokv)
