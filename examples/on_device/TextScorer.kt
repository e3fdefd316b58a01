// Scores texts on Android with a .tflite file that `python -m serving.tflite` made.
// In the app's build.gradle.kts: implementation("com.google.ai.edge.litert:litert:2.3.0")

import android.content.res.AssetManager
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel

/** A classifier of single texts, such as sentiment; [asset] is the file among the app's assets. */
class TextScorer(assets: AssetManager, asset: String, private val maxBytes: Int = 512) : AutoCloseable {
    private val model = CompiledModel.create(assets, asset, CompiledModel.Options(Accelerator.CPU))
    private val text = model.createInputBuffer("text", SIGNATURE)
    private val outputs =
        listOf("scores", "num_tokens", "truncated").associateWith { model.createOutputBuffer(it, SIGNATURE) }

    /** Returns the probability of each class. Only one thread may call it at a time. */
    fun score(input: String): FloatArray {
        val bytes = input.toByteArray() // UTF-8; the sign of Kotlin's bytes does no harm
        text.writeInt(IntArray(maxBytes) { if (it < bytes.size) bytes[it].toInt() else 0 })
        model.run(mapOf("text" to text), outputs, SIGNATURE)
        return outputs.getValue("scores").readFloat()
    }

    override fun close() {
        (outputs.values + text).forEach { it.close() }
        model.close()
    }

    private companion object {
        const val SIGNATURE = "text"
    }
}
