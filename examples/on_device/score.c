/* Scores a text with a .tflite file, through LiteRT's C API.
 *
 *     cc score.c -o score PATH/libLiteRt.so -Wl,-rpath,PATH
 *     ./score sst2.tflite text="a joy to watch"
 *
 * The library is in Android's and iOS's packages of LiteRT, and in Python's: in the folder of
 * `ai_edge_litert`. Python's package has no headers, so this file declares what it uses of them. If
 * you have the headers, include "litert/c/litert_compiled_model.h" and its neighbours instead.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct LiteRtEnvironmentT* LiteRtEnvironment;
typedef struct LiteRtModelT* LiteRtModel;
typedef struct LiteRtOptionsT* LiteRtOptions;
typedef struct LiteRtCompiledModelT* LiteRtCompiledModel;
typedef struct LiteRtSignatureT* LiteRtSignature;
typedef struct LiteRtTensorT* LiteRtTensor;
typedef struct LiteRtTensorBufferT* LiteRtTensorBuffer;
typedef struct LiteRtTensorBufferRequirementsT* LiteRtTensorBufferRequirements;
typedef int LiteRtStatus; /* 0 is success */
typedef struct {
  unsigned int rank : 7;
  bool has_strides : 1;
  int32_t dimensions[8];
  uint32_t strides[8];
} LiteRtLayout;
typedef struct {
  int element_type;
  LiteRtLayout layout;
} LiteRtRankedTensorType;
enum { kLiteRtElementTypeFloat32 = 1 };
enum { kLiteRtHwAcceleratorCpu = 1 };
enum { kLiteRtTensorBufferLockModeRead = 0, kLiteRtTensorBufferLockModeWrite = 1 };

LiteRtStatus LiteRtCreateEnvironment(int, const void* options, LiteRtEnvironment*);
LiteRtStatus LiteRtCreateModelFromFile(LiteRtEnvironment, const char* path, LiteRtModel*);
LiteRtStatus LiteRtCreateOptions(LiteRtOptions*);
LiteRtStatus LiteRtSetOptionsHardwareAccelerators(LiteRtOptions, int accelerators);
LiteRtStatus LiteRtCreateCompiledModel(LiteRtEnvironment, LiteRtModel, LiteRtOptions,
                                       LiteRtCompiledModel*);
LiteRtStatus LiteRtGetModelMetadata(LiteRtModel, const char* key, const void**, size_t*);
LiteRtStatus LiteRtGetNumModelSignatures(LiteRtModel, size_t*);
LiteRtStatus LiteRtGetModelSignature(LiteRtModel, size_t index, LiteRtSignature*);
LiteRtStatus LiteRtGetSignatureKey(LiteRtSignature, const char**);
LiteRtStatus LiteRtGetNumSignatureInputs(LiteRtSignature, size_t*);
LiteRtStatus LiteRtGetNumSignatureOutputs(LiteRtSignature, size_t*);
LiteRtStatus LiteRtGetSignatureInputName(LiteRtSignature, size_t, const char**);
LiteRtStatus LiteRtGetSignatureInputTensorByIndex(LiteRtSignature, size_t, LiteRtTensor*);
LiteRtStatus LiteRtGetSignatureOutputTensorByIndex(LiteRtSignature, size_t, LiteRtTensor*);
LiteRtStatus LiteRtGetSignatureOutputName(LiteRtSignature, size_t, const char**);
LiteRtStatus LiteRtGetRankedTensorType(LiteRtTensor, LiteRtRankedTensorType*);
LiteRtStatus LiteRtGetCompiledModelInputBufferRequirements(LiteRtCompiledModel, size_t signature,
                                                           size_t input,
                                                           LiteRtTensorBufferRequirements*);
LiteRtStatus LiteRtGetCompiledModelOutputBufferRequirements(LiteRtCompiledModel, size_t signature,
                                                            size_t output,
                                                            LiteRtTensorBufferRequirements*);
LiteRtStatus LiteRtCreateManagedTensorBufferFromRequirements(LiteRtEnvironment,
                                                             const LiteRtRankedTensorType*,
                                                             LiteRtTensorBufferRequirements,
                                                             LiteRtTensorBuffer*);
LiteRtStatus LiteRtGetTensorBufferPackedSize(LiteRtTensorBuffer, size_t*);
LiteRtStatus LiteRtLockTensorBuffer(LiteRtTensorBuffer, void** address, int mode);
LiteRtStatus LiteRtUnlockTensorBuffer(LiteRtTensorBuffer);
LiteRtStatus LiteRtRunCompiledModel(LiteRtCompiledModel, size_t signature, size_t num_inputs,
                                    LiteRtTensorBuffer*, size_t num_outputs, LiteRtTensorBuffer*);

#define MAX_TENSORS 8

static void check(LiteRtStatus status, const char* what) {
  if (status != 0) {
    fprintf(stderr, "%s failed: status %d\n", what, status);
    exit(1);
  }
}
#define CHECK(call) check(call, #call)

/* Returns the index of the signature with that name. */
static size_t find_signature(LiteRtModel model, const char* name, LiteRtSignature* signature) {
  size_t count;
  const char* key;
  CHECK(LiteRtGetNumModelSignatures(model, &count));
  for (size_t i = 0; i < count; i++) {
    CHECK(LiteRtGetModelSignature(model, i, signature));
    CHECK(LiteRtGetSignatureKey(*signature, &key));
    if (strcmp(key, name) == 0) return i;
  }
  fprintf(stderr, "The model has no signature \"%s\".\n", name);
  exit(1);
}

/* Returns the text of an argument NAME=TEXT, the first of that name for index 0; or NULL. */
static const char* find_text(int argc, char** argv, const char* name, int index) {
  size_t length = strlen(name);
  for (int i = 2; i < argc; i++) {
    if (strncmp(argv[i], name, length) != 0 || argv[i][length] != '=') continue;
    if (index-- == 0) return argv[i] + length + 1;
  }
  return NULL;
}

/* Writes the texts of a name into an int32 buffer, UTF-8 followed by zeros: one text, or a row for
 * each choice. What does not fit is dropped. */
static void write_texts(LiteRtTensorBuffer buffer, LiteRtLayout layout, int argc, char** argv,
                        const char* name) {
  int rows = layout.rank == 2 ? layout.dimensions[0] : 1;
  if (!find_text(argc, argv, name, 0) || find_text(argc, argv, name, rows)) {
    fprintf(stderr, "The model takes %s=TEXT, at least once and at most %d times.\n", name, rows);
    exit(2);
  }
  size_t size;
  int32_t* slots;
  CHECK(LiteRtGetTensorBufferPackedSize(buffer, &size));
  CHECK(LiteRtLockTensorBuffer(buffer, (void**)&slots, kLiteRtTensorBufferLockModeWrite));
  memset(slots, 0, size);
  size_t length = size / sizeof(int32_t) / rows;
  for (int row = 0; row < rows; row++) {
    const char* text = find_text(argc, argv, name, row);
    for (size_t i = 0; text && text[i] && i < length; i++) {
      slots[row * length + i] = (unsigned char)text[i];
    }
  }
  CHECK(LiteRtUnlockTensorBuffer(buffer));
}

/* Prints a buffer as `name: value value ...`. */
static void print(const char* name, LiteRtTensorBuffer buffer, int element_type) {
  size_t size;
  void* values;
  CHECK(LiteRtGetTensorBufferPackedSize(buffer, &size));
  CHECK(LiteRtLockTensorBuffer(buffer, &values, kLiteRtTensorBufferLockModeRead));
  printf("%s:", name);
  for (size_t i = 0; i < size / 4; i++) { /* float32 and int32 have four bytes */
    if (element_type == kLiteRtElementTypeFloat32) {
      printf(" %.6f", ((float*)values)[i]);
    } else {
      printf(" %d", ((int32_t*)values)[i]);
    }
  }
  printf("\n");
  CHECK(LiteRtUnlockTensorBuffer(buffer));
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s MODEL.tflite NAME=TEXT [NAME=TEXT ...]\n", argv[0]);
    return 2;
  }
  LiteRtEnvironment environment;
  LiteRtModel model;
  LiteRtOptions options;
  LiteRtCompiledModel compiled;
  CHECK(LiteRtCreateEnvironment(0, NULL, &environment));
  CHECK(LiteRtCreateModelFromFile(environment, argv[1], &model));
  CHECK(LiteRtCreateOptions(&options));
  CHECK(LiteRtSetOptionsHardwareAccelerators(options, kLiteRtHwAcceleratorCpu));
  CHECK(LiteRtCreateCompiledModel(environment, model, options, &compiled));

  const void* metadata; /* JSON: the task, its labels, the vocabulary's fingerprint, lengths */
  size_t metadata_size;
  CHECK(LiteRtGetModelMetadata(model, "gpt1_keras", &metadata, &metadata_size));
  printf("metadata: %.*s\n", (int)metadata_size, (const char*)metadata);

  LiteRtSignature signature;
  LiteRtTensor tensor;
  LiteRtRankedTensorType type;
  LiteRtTensorBufferRequirements requirements;
  LiteRtTensorBuffer inputs[MAX_TENSORS], outputs[MAX_TENSORS];
  int element_types[MAX_TENSORS];
  size_t num_inputs, num_outputs, number = find_signature(model, "text", &signature);
  CHECK(LiteRtGetNumSignatureInputs(signature, &num_inputs));
  CHECK(LiteRtGetNumSignatureOutputs(signature, &num_outputs));
  if (num_inputs > MAX_TENSORS || num_outputs > MAX_TENSORS) {
    fprintf(stderr, "The model has too many inputs or outputs.\n");
    return 1;
  }
  for (size_t i = 0; i < num_inputs; i++) {
    CHECK(LiteRtGetSignatureInputTensorByIndex(signature, i, &tensor));
    CHECK(LiteRtGetRankedTensorType(tensor, &type));
    CHECK(LiteRtGetCompiledModelInputBufferRequirements(compiled, number, i, &requirements));
    CHECK(LiteRtCreateManagedTensorBufferFromRequirements(environment, &type, requirements,
                                                          &inputs[i]));
    const char* name;
    CHECK(LiteRtGetSignatureInputName(signature, i, &name));
    write_texts(inputs[i], type.layout, argc, argv, name);
  }
  for (size_t i = 0; i < num_outputs; i++) {
    CHECK(LiteRtGetSignatureOutputTensorByIndex(signature, i, &tensor));
    CHECK(LiteRtGetRankedTensorType(tensor, &type));
    element_types[i] = type.element_type;
    CHECK(LiteRtGetCompiledModelOutputBufferRequirements(compiled, number, i, &requirements));
    CHECK(LiteRtCreateManagedTensorBufferFromRequirements(environment, &type, requirements,
                                                          &outputs[i]));
  }
  CHECK(LiteRtRunCompiledModel(compiled, number, num_inputs, inputs, num_outputs, outputs));
  for (size_t i = 0; i < num_outputs; i++) {
    const char* name;
    CHECK(LiteRtGetSignatureOutputName(signature, i, &name));
    print(name, outputs[i], element_types[i]);
  }
  return 0;
}
