// Reads the metadata that gpt1_keras puts into its .tflite files, a FlatBuffer.

const BUFFERS = 4; // fields of the tables, by the order in TensorFlow Lite's schema
const METADATA = 6;
const [NAME, BUFFER] = [0, 1];
const [DATA, OFFSET, SIZE] = [0, 1, 2];

/** Returns the metadata: task, labels, lengths and so on; see docs/on_device.md. */
export function readMetadata(bytes, name = 'gpt1_keras') {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const u32 = (at) => view.getUint32(at, true);
  const u64 = (at) => Number(view.getBigUint64(at, true));
  const follow = (at) => at + u32(at);
  // The offset of a table's field, or 0 if it is absent.
  const field = (table, number) => {
    const vtable = table - view.getInt32(table, true);
    const slot = 4 + 2 * number;
    const offset = slot < view.getUint16(vtable, true) ? view.getUint16(vtable + slot, true) : 0;
    return offset && table + offset;
  };
  const decode = (start, length) =>
    new TextDecoder().decode(bytes.subarray(start, start + length));

  const model = follow(0);
  const entries = field(model, METADATA) && follow(field(model, METADATA));
  for (let i = 0; entries && i < u32(entries); i++) {
    const entry = follow(entries + 4 + 4 * i);
    const key = follow(field(entry, NAME));
    if (decode(key + 4, u32(key)) !== name) continue;
    const buffers = follow(field(model, BUFFERS));
    const buffer = follow(buffers + 4 + 4 * u32(field(entry, BUFFER)));
    // Large buffers may follow the FlatBuffer.
    const offset = field(buffer, OFFSET) && u64(field(buffer, OFFSET));
    if (offset) return JSON.parse(decode(offset, u64(field(buffer, SIZE))));
    const data = follow(field(buffer, DATA));
    return JSON.parse(decode(data + 4, u32(data)));
  }
  throw new Error(`The model has no metadata named ${name}.`);
}
