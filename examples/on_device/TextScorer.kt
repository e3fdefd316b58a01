// Answers texts on Android with a classifier's .tflite file, as `gpt1 tflite` makes it.
// In the app's build.gradle.kts: implementation("com.google.ai.edge.litert:litert:2.3.0")
//
// It was not compiled for Android here, nor run there. The project's tests make the same calls of
// CompiledModel in Python.

import android.content.res.AssetManager
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel
import java.io.FileInputStream
import java.nio.channels.FileChannel
import org.json.JSONArray

/**
 * What a model says of a text.
 *
 * [scores] has a probability for each class; [isSure] is null if the model has no threshold;
 * [isTruncated] says that the text was too long, and its end was not read.
 */
class Answer(val scores: Map<String, Float>, val isSure: Boolean?, val isTruncated: Boolean) {
    val label: String get() = scores.maxByOrNull { it.value }!!.key
}

/** A classifier of texts or of pairs of texts; [asset] is the file among the app's assets. */
class TextScorer(assets: AssetManager, asset: String) : AutoCloseable {
    private val metadata = assets.openFd(asset).use {
        val channel = FileInputStream(it.fileDescriptor).channel
        readMetadata(channel.map(FileChannel.MapMode.READ_ONLY, it.startOffset, it.declaredLength))
    }
    private val maxBytes = metadata.getJSONObject("max_bytes")
    private val classNames = metadata.getJSONArray("class_names").toStrings()
    private val model = CompiledModel.create(assets, asset, CompiledModel.Options(Accelerator.CPU))
    private val inputs = metadata.getJSONArray("fields").toStrings()
        .associateWith { model.createInputBuffer(it, SIGNATURE) }
    // CompiledModel wants a buffer for every output.
    private val outputs = metadata.getJSONArray("outputs").toStrings()
        .associateWith { model.createOutputBuffer(it, SIGNATURE) }

    /** Answers a text, or a text for each of the model's fields. Only one thread may call it at a time. */
    fun score(vararg texts: String): Answer {
        require(texts.size == inputs.size) { "Expected a text for each of ${inputs.keys}." }
        for ((field, text) in inputs.keys.zip(texts)) {
            val bytes = text.toByteArray() // UTF-8; the sign of Kotlin's bytes does no harm
            val size = maxBytes.getInt(field)
            val slots = IntArray(size) { if (it < bytes.size) bytes[it].toInt() else 0 }
            inputs.getValue(field).writeInt(slots)
        }
        model.run(inputs, outputs, SIGNATURE)
        val scores = outputs.getValue("scores").readFloat()
        return Answer(
            classNames.zip(scores.asIterable()).toMap(),
            outputs["is_sure"]?.let { it.readInt()[0] == 1 },
            outputs.getValue("truncated").readInt()[0] == 1,
        )
    }

    override fun close() {
        (inputs.values + outputs.values).forEach { it.close() }
        model.close()
    }

    private companion object {
        const val SIGNATURE = "text"

        fun JSONArray.toStrings() = List(length()) { getString(it) }
    }
}
