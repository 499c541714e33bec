package org.apache.rocketmq.test;

import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** Runs the test classes that it is given, and prints a line for each test: class, method, verdict, reason. */
public class RunTests {
    public static void main(String[] classes) throws Exception {
        JUnitCore core = new JUnitCore();
        core.addListener(new Told());
        for (String each : classes) {
            core.run(Class.forName(each));
        }
        System.exit(0); // clients of tests have threads that would go on
    }

    static class Told extends RunListener {
        private String failure;

        @Override
        public void testStarted(Description test) {
            failure = null;
        }

        @Override
        public void testFailure(Failure failed) {
            failure = String.valueOf(failed.getException()).replaceAll("\\s+", " ");
            if (failed.getDescription().getMethodName() == null) { // of a whole class
                say(failed.getDescription(), "failed", failure);
            }
        }

        @Override
        public void testIgnored(Description test) {
            say(test, "ignored", "by Apache");
        }

        @Override
        public void testFinished(Description test) {
            say(test, failure == null ? "passed" : "failed", failure == null ? "" : failure);
        }

        private static void say(Description test, String verdict, String reason) {
            String name = test.getTestClass().getSimpleName();
            System.out.printf("RESULT\t%s\t%s\t%s\t%s%n", name, test.getMethodName(), verdict, reason);
        }
    }
}
