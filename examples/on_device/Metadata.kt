// Reads the metadata that gpt1_keras puts into its .tflite files, a FlatBuffer.

import java.nio.ByteBuffer
import java.nio.ByteOrder
import org.json.JSONObject

// Fields of the tables, by the order in TensorFlow Lite's schema.
private const val BUFFERS = 4
private const val METADATA = 6
private const val NAME = 0
private const val BUFFER = 1
private const val DATA = 0
private const val OFFSET = 1
private const val SIZE = 2

/** Returns the metadata of a file's content: task, labels, lengths and so on; see docs/on_device.md. */
fun readMetadata(content: ByteBuffer, name: String = "gpt1_keras"): JSONObject {
    val file = content.duplicate().order(ByteOrder.LITTLE_ENDIAN)
    fun follow(at: Int) = at + file.getInt(at)
    // The offset of a table's field, or 0 if it is absent.
    fun field(table: Int, number: Int): Int {
        val vtable = table - file.getInt(table)
        val slot = 4 + 2 * number
        val offset = if (slot < file.getShort(vtable)) file.getShort(vtable + slot).toInt() else 0
        return if (offset == 0) 0 else table + offset
    }
    fun decode(start: Int, length: Int): String {
        val bytes = ByteArray(length)
        file.position(start)
        file.get(bytes)
        return bytes.decodeToString()
    }

    val model = follow(0)
    val entries = field(model, METADATA).let { if (it == 0) 0 else follow(it) }
    for (i in 0 until if (entries == 0) 0 else file.getInt(entries)) {
        val entry = follow(entries + 4 + 4 * i)
        val key = follow(field(entry, NAME))
        if (decode(key + 4, file.getInt(key)) != name) continue
        val buffers = follow(field(model, BUFFERS))
        val buffer = follow(buffers + 4 + 4 * file.getInt(field(entry, BUFFER)))
        // Large buffers may follow the FlatBuffer.
        val offset = field(buffer, OFFSET).let { if (it == 0) 0 else file.getLong(it).toInt() }
        if (offset != 0) return JSONObject(decode(offset, file.getLong(field(buffer, SIZE)).toInt()))
        val data = follow(field(buffer, DATA))
        return JSONObject(decode(data + 4, file.getInt(data)))
    }
    throw IllegalArgumentException("The model has no metadata named $name.")
}
