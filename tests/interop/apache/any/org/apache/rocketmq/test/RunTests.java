package org.apache.rocketmq.test;

import java.util.Arrays;
import java.util.List;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** Runs a test class, or the methods of it that are named, and prints a line for each: class, method, verdict, reason. */
public class RunTests {
    public static void main(String[] wanted) throws Exception {
        Request request = Request.aClass(Class.forName(wanted[0]));
        if (wanted.length > 1) {
            request = request.filterWith(new Named(Arrays.asList(wanted).subList(1, wanted.length)));
        }
        JUnitCore core = new JUnitCore();
        core.addListener(new Told());
        core.run(request);
        System.exit(0); // clients of tests have threads that would go on
    }

    static class Named extends Filter {
        private final List<String> names;

        Named(List<String> names) {
            this.names = names;
        }

        @Override
        public boolean shouldRun(Description test) {
            return test.isTest() ? names.contains(test.getMethodName()) : test.getChildren().stream().anyMatch(this::shouldRun);
        }

        @Override
        public String describe() {
            return names.toString();
        }
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
