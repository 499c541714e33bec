/* The library of compiled modules is one Python module, rocketbox. Its function load(name) runs the compiled module whose
   initialiser mypyc calls `name`, and returns it; `group` is the module that mypyc keeps the initialisers in.
   appliance/compiled.py uses both when a compiled module is imported. */
#include <Python.h>

PyMODINIT_FUNC PyInit_rocketbox__mypyc(void);

static PyObject *group;

static PyObject *load(PyObject *self, PyObject *name)
{
    PyObject *capsule = PyObject_GetAttr(group, name);
    if (capsule == NULL)
        return NULL;
    PyObject *(*init)(void) = (PyObject * (*)(void)) PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    Py_DECREF(capsule);
    return init == NULL ? NULL : init();
}

static PyMethodDef methods[] = {{"load", load, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "rocketbox", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_rocketbox(void)
{
    if (group == NULL)
        group = PyInit_rocketbox__mypyc();
    PyObject *module = group == NULL ? NULL : PyModule_Create(&definition);
    if (module != NULL && PyModule_AddObjectRef(module, "group", group) < 0)
        Py_CLEAR(module);
    return module;
}
